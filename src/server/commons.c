// SPDX-License-Identifier: Apache-2.0
/* A gathering is
 *
 * FORMING   its founder has gone to mount it; who else belongs there waits
 * OPEN      served
 * OVER      its file system is gone, or was never there: nobody finds it; it goes when the last has left it
 *
 * and a mount in it is entered, bound (or abandoned), then perhaps forgotten (the kernel was told), and leaves when the
 * kernel has given its root back or the gathering is over. Lock order: gather.c's lock before this one. */
#include "commons-internal.h"

#include "veneer/cleanup.h"
#include "veneer/clock.h"
#include "veneer/log.h"
#include "veneer/mountinfo.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS COMMONS_TICK_MS
#define ELSEWHERE_MS 2000	/* one that is mounted in other namespaces only is looked for less often */
#define FORMING_MS 2000		/* then the founder is taken for stuck, and is not waited for */
#define END_WAIT_MS 5000u
#define STACK_SIZE (256u << 10)

static struct commoner *commoner_of(struct list_link *l)
{
	return (struct commoner *)((char *)l - offsetof(struct commoner, link));
}

static void wait_locked(struct commons *cs, unsigned ms)
{
	clock_wait(&cs->changed, &cs->lock, clock_ms() + ms);
}

int commons_new(struct pool *pool, struct ledger *ledger, void (*ended)(void *owner), struct commons **ret)
{
	struct commons *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->pool = pool;
	cs->ledger = ledger;
	cs->ended = ended;
	pthread_mutex_init(&cs->lock, NULL);
	pthread_cond_init(&cs->changed, NULL);
	list_init(&cs->all);
	*ret = cs;
	return 0;
}

void commons_free(struct commons *cs)
{
	if (!cs)
		return;
	pthread_mutex_lock(&cs->lock);
	cs->is_stopping = true;
	pthread_cond_broadcast(&cs->changed);
	while (cs->threads || !list_is_empty(&cs->all))
		pthread_cond_wait(&cs->changed, &cs->lock);
	pthread_mutex_unlock(&cs->lock);
	pthread_cond_destroy(&cs->changed);
	pthread_mutex_destroy(&cs->lock);
	free(cs);
}

/* A thread that nobody joins, counted until end_thread. */
static int start_thread(struct commons *cs, void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_mutex_lock(&cs->lock);
	cs->threads++;
	pthread_mutex_unlock(&cs->lock);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = -pthread_create(&thread, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	if (r < 0) {
		LOCK_SCOPE(&cs->lock);
		cs->threads--;
		pthread_cond_broadcast(&cs->changed);
	}
	return r;
}

/* Where there is none to be had, here. */
static void run(struct commons *cs, void *(*fn)(void *arg), void *arg)
{
	if (start_thread(cs, fn, arg) == 0)
		return;
	pthread_mutex_lock(&cs->lock);
	cs->threads++;
	pthread_mutex_unlock(&cs->lock);
	fn(arg);
}

/* ---- one gathering ---- */

static void hold(struct common *c)
{
	LOCK_SCOPE(&c->cs->lock);
	c->holds++;
}

static void end_thread(struct commons *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->threads--;
	pthread_cond_broadcast(&cs->changed);
}

static bool is_last_release(struct common *c)
{
	LOCK_SCOPE(&c->cs->lock);
	if (--c->holds > 0)
		return false;
	list_del(&c->link);
	/* Whoever ends the whole waits for this one. */
	c->cs->threads++;
	return true;
}

/* It is over with the last, or it would be held by the pool. */
void common_release(struct common *c)
{
	struct commons *cs = c->cs;
	struct commoner *last;

	if (!is_last_release(c))
		return;
	last = c->last;
	gather_free(c->gather);
	if (c->has_mount)
		mount_close(&c->mount);
	kept_release(&c->kept);
	free(c);
	if (last)
		cs->ended(last->owner);
	free(last);
	end_thread(cs);
}

void common_note_unused(void *owner)
{
	struct commoner *o = owner;

	LOCK_SCOPE(&o->common->cs->lock);
	o->is_unused = true;
	pthread_cond_broadcast(&o->common->cs->changed);
}

/* The same layers once more. */
static int open_dirs(const struct mount *m, pid_t opener, struct mount_dirs *ret)
{
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers);
	int r = n == m->opts.n_lower ? 0 : -EINVAL;

	dirs_init(ret);
	ret->opener = opener;
	for (size_t i = 0; r == 0 && i < n; i++) {
		int fd = fcntl(layers[i]->rootfd, F_DUPFD_CLOEXEC, 3);

		r = fd < 0 ? -errno : dirs_add_lower(ret, fd);
	}
	return r;
}

/* For the next server: what one of them was asked for with, without what is its own. */
static int keep_asked(struct common *c, const struct dossier *asked)
{
	struct mount_dirs dirs = asked->dirs;
	struct dossier *d = &c->kept.dossier;

	if (!c->cs->ledger)
		return 0;
	dirs.upper = dirs.work = -1;
	c->key = c->mount.key = d->key = d->group = ledger_key(c->cs->ledger);
	d->argc = asked->argc;
	d->flags = asked->flags;
	return buf_put(&d->args, asked->args.data, asked->args.len) ?: dossier_keep_dirs(d, &dirs);
}

static int open_common_mount(struct common *c, const struct mount *m, const struct dossier *asked, pid_t opener)
{
	struct mount_opts opts = { 0 };
	struct mount_dirs dirs;
	char err[512] = "";
	int r = open_dirs(m, opener, &dirs);

	if (r == 0)
		r = options_common(&m->opts, &opts);
	if (r < 0) {
		dirs_release(&dirs);
		return r;
	}
	c->has_mount = true;
	r = mount_open_at(&c->mount, &opts, &dirs, err, sizeof(err));
	/* Somebody has changed a layer just now, or it is for one mount alone. */
	if (r == 0 && c->mount.tree.image != m->tree.image)
		r = -EOPNOTSUPP;
	if (r == 0)
		r = keep_asked(c, asked);
	if (r == 0)
		r = gather_new(&c->mount, -1, common_note_unused, &c->gather);
	if (r < 0)
		log_debug("%s: no gathering: %s", m->opts.mountpoint, *err ? err : strerror(-r));
	return r;
}

struct common *common_new(struct commons *cs)
{
	struct common *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cs = cs;
	c->kept.ledger = cs->ledger;
	dossier_init(&c->kept.dossier);
	c->state = FORMING;
	c->holds = 1;
	list_init(&c->link);
	list_init(&c->members);
	return c;
}

/* Others found one among themselves. It may still open, and then is one beside that. */
static bool is_stuck(const struct common *c)
{
	return c->state == FORMING && clock_ms() - c->since_ms >= FORMING_MS;
}

static struct common *find_locked(struct commons *cs, const struct mount *m)
{
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct common *c = common_of(l);

		if (c->state != OVER && !c->is_left && !is_stuck(c) && c->mount.tree.image == m->tree.image &&
		    options_agree(&c->mount.opts, &m->opts) &&
		    !(c->state == OPEN && gather_has_ended(c->gather)))
			return c;
	}
	return NULL;
}

/* One that is open, held; -EAGAIN: there is none. */
static int seek_open(struct commons *cs, const struct mount *m, struct common **ret, int *ret_fd)
{
	struct common *c;

	LOCK_SCOPE(&cs->lock);
	while ((c = find_locked(cs, m)) && c->state == FORMING)
		wait_locked(cs, TICK_MS);
	if (!c)
		return -EAGAIN;
	*ret_fd = fcntl(c->kept.dossier.fuse_fd, F_DUPFD_CLOEXEC, 3);
	if (*ret_fd < 0)
		return -errno;
	c->holds++;
	*ret = c;
	return 0;
}

/* False: somebody else was faster. */
static bool publish(struct commons *cs, struct common *c)
{
	LOCK_SCOPE(&cs->lock);
	c->since_ms = clock_ms();
	if (find_locked(cs, &c->mount))
		c->state = OVER;
	list_add_tail(&cs->all, &c->link);
	return c->state == FORMING;
}

int commons_seek(struct commons *cs, struct mount *m, const struct dossier *asked, pid_t opener, struct common **ret,
		 int *ret_fd)
{
	struct common *c;
	int r;

	if (!m->tree.upper || m->opts.share != SHARE_PAGES || m->opts.io != IO_CACHED)
		return -EOPNOTSUPP;
	for (;;) {
		r = seek_open(cs, m, ret, ret_fd);
		if (r != -EAGAIN)
			return r;
		c = common_new(cs);
		r = c ? open_common_mount(c, m, asked, opener) : -ENOMEM;
		if (r < 0 && c)
			common_release(c);
		if (r < 0)
			return r;
		if (publish(cs, c))
			break;
		common_release(c);
	}
	*ret = c;
	*ret_fd = -1;
	return 0;
}

static void set_state(struct common *c, enum state state)
{
	LOCK_SCOPE(&c->cs->lock);
	c->state = state;
	pthread_cond_broadcast(&c->cs->changed);
}

void commons_leave(struct common *c)
{
	pthread_mutex_lock(&c->cs->lock);
	if (c->state == FORMING)
		c->state = OVER;
	pthread_cond_broadcast(&c->cs->changed);
	pthread_mutex_unlock(&c->cs->lock);
	common_release(c);
}

/* ---- leaving ---- */

static void *leave_one(void *arg)
{
	struct commoner *o = arg;
	struct common *c = o->common;
	struct commons *cs = c->cs;
	bool is_last;

	gather_leave(o->gathered);
	pthread_mutex_lock(&cs->lock);
	list_del(&o->link);
	cs->count--;
	is_last = c->state == OVER && list_is_empty(&c->members);
	if (is_last)
		c->last = o;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	if (!is_last) {
		cs->ended(o->owner);
		free(o);
	}
	common_release(c);
	end_thread(cs);
	return NULL;
}

/* One that is to leave, marked; NULL: none. */
static struct commoner *take_leaving(struct common *c)
{
	LOCK_SCOPE(&c->cs->lock);
	for (struct list_link *l = c->members.next; l != &c->members; l = l->next) {
		struct commoner *o = commoner_of(l);

		if (!o->is_leaving && (o->is_bound || o->is_abandoned) && (o->is_unused || c->state == OVER)) {
			o->is_leaving = true;
			return o;
		}
	}
	return NULL;
}

static void let_leave(struct common *c)
{
	struct commoner *o;

	while ((o = take_leaving(c)))
		run(c->cs, leave_one, o);
}

/* Called by the pool, on a thread of its own. Who is about to be bound, or is just being looked for, leaves later. */
static void common_ended(struct session *session, void *arg)
{
	struct common *c = arg;

	set_state(c, OVER);
	/* While it is found: who takes it up from the ledger would have its descriptors, which are closed soon. */
	kept_drop(&c->kept);
	pthread_mutex_lock(&c->cs->lock);
	while (!list_is_empty(&c->members)) {
		pthread_mutex_unlock(&c->cs->lock);
		let_leave(c);
		pthread_mutex_lock(&c->cs->lock);
		if (!list_is_empty(&c->members))
			wait_locked(c->cs, TICK_MS);
	}
	pthread_mutex_unlock(&c->cs->lock);
	session_free(session);
	common_release(c);
}

int common_serve(struct common *c, struct session *session, char *err, size_t err_size)
{
	int r;

	hold(c);
	r = pool_add(c->cs->pool, session, common_ended, c, &c->number);
	if (r < 0) {
		snprintf(err, err_size, "cannot start a thread: %s", strerror(-r));
		session_free(session);
		common_release(c);
		return r;
	}
	LOCK_SCOPE(&c->cs->lock);
	c->is_left = false;
	if (c->state == FORMING)
		c->state = OPEN;
	pthread_cond_broadcast(&c->cs->changed);
	return 0;
}

/* Where the kernel does not send again what a dead server had read, they all end with the server. */
static int keep_common(struct common *c, int fuse_fd, const struct session *session)
{
	struct dossier *d = &c->kept.dossier;
	const void *init;
	size_t len;

	d->dev_major = c->dev_major;
	d->dev_minor = c->dev_minor;
	init = session_init(session, &len);
	if (c->cs->ledger && session_is_sent_again(session)) {
		d->recall_fd = gather_recall_fd(c->gather);
		return kept_write(&c->kept, &c->mount, fuse_fd, init, len);
	}
	d->fuse_fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3);
	return d->fuse_fd < 0 ? -EMFILE : -EOPNOTSUPP;
}

int commons_found(struct common *c, int fuse_fd, unsigned dev_major, unsigned dev_minor, char *err, size_t err_size)
{
	struct session *session;
	int r;

	c->dev_major = dev_major;
	c->dev_minor = dev_minor;
	gather_note_device(c->gather, dev_major, dev_minor);
	r = gather_start(c->gather, fuse_fd, &session, err, err_size);
	if (r < 0)
		return r;
	r = keep_common(c, fuse_fd, session);
	if (c->kept.dossier.fuse_fd < 0) {
		snprintf(err, err_size, "too many open files");
		session_free(session);
		return -EMFILE;
	}
	if (r < 0 && c->cs->ledger)
		log_warn("%s: should the server die, the mounts that share pages with it will be gone: %s",
			 c->mount.opts.mountpoint, strerror(-r));
	return common_serve(c, session, err, err_size);
}

/* ---- where they are mounted ---- */

static void *forget_one(void *arg)
{
	struct commoner *o = arg;
	struct common *c = o->common;
	struct commons *cs = c->cs;

	gather_forget(o->gathered);
	/* It was never looked up, or is given back already. */
	if (!gather_is_used(o->gathered))
		common_note_unused(o);
	pthread_mutex_lock(&cs->lock);
	o->is_leaving = false;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	common_release(c);
	end_thread(cs);
	return NULL;
}

/* What is looked for in one mount namespace, or in all. */
struct search {
	uint32_t number;
	bool is_found;
};

static void note_root(const char *root, void *arg)
{
	struct search *s = arg;
	unsigned number;

	if (sscanf(root, "/%9u", &number) == 1 && number == s->number)
		s->is_found = true;
}

static bool is_mounted(struct commoner *o, bool *ret_is_elsewhere)
{
	const struct common *c = o->common;
	struct search s = { .number = gather_number(o->gathered) };

	*ret_is_elsewhere = false;
	if (mountinfo_roots(o->mount_ns, &o->seen_by, c->dev_major, c->dev_minor, note_root, &s) < 0 || !s.is_found) {
		*ret_is_elsewhere = true;
		/* In doubt it is. */
		if (mountinfo_roots(0, NULL, c->dev_major, c->dev_minor, note_root, &s) < 0)
			return true;
	}
	return s.is_found;
}

static bool is_due(const struct commoner *o, int64_t now)
{
	if (o->is_leaving || o->is_unused || o->round == o->common->cs->round)
		return false;
	return (o->is_abandoned || o->is_bound) && o->next_ms <= now;
}

/* One for which it is time, kept from leaving, and its gathering held; NULL: none. */
static struct commoner *take_due(struct commons *cs, int64_t now)
{
	LOCK_SCOPE(&cs->lock);
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct common *c = common_of(l);

		for (struct list_link *k = c->members.next; k != &c->members; k = k->next) {
			struct commoner *o = commoner_of(k);

			if (!is_due(o, now))
				continue;
			o->round = cs->round;
			o->is_leaving = true;
			c->holds++;
			return o;
		}
	}
	return NULL;
}

static void look_at(struct commons *cs, struct commoner *o)
{
	struct common *c = o->common;
	bool is_elsewhere = false, is_there = !o->is_abandoned && is_mounted(o, &is_elsewhere), ends, is_rare;

	pthread_mutex_lock(&cs->lock);
	/* All processes are asked where its own namespace does not show it: but at once more after the first time. */
	is_rare = o->is_abandoned ? o->is_forgotten : is_elsewhere && (is_there || o->is_forgotten);
	o->next_ms = clock_ms() + (is_rare ? ELSEWHERE_MS : TICK_MS / 2);
	ends = o->is_wanted && o->is_forgotten && !is_there;
	o->is_wanted = o->is_wanted && !is_there && !ends;
	o->is_unused |= ends;
	o->is_forgotten = !is_there;
	o->is_leaving = !is_there;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	if (ends)
		log_warn("%s is detached but in use, and another mount wants its upper; ending", o->mountpoint);
	if (is_there)
		common_release(c);
	else
		run(cs, forget_one, o);
}

struct common *common_hold_next(struct commons *cs, struct common *last)
{
	LOCK_SCOPE(&cs->lock);
	struct list_link *l = last ? last->link.next : cs->all.next;

	if (l == &cs->all)
		return NULL;
	common_of(l)->holds++;
	return common_of(l);
}

static void let_all_leave(struct commons *cs)
{
	struct common *c = NULL, *next;

	while ((next = common_hold_next(cs, c))) {
		if (c)
			common_release(c);
		c = next;
		let_leave(c);
	}
	if (c)
		common_release(c);
}

/* Until there is something to do. False: the end. */
static bool await_round(struct commons *cs, int64_t *ret_now)
{
	LOCK_SCOPE(&cs->lock);
	if (!cs->is_stopping && !cs->is_wanted && !cs->is_hurried && cs->count)
		wait_locked(cs, TICK_MS);
	while (!cs->is_stopping && !cs->count)
		pthread_cond_wait(&cs->changed, &cs->lock);
	*ret_now = cs->is_wanted ? INT64_MAX : clock_ms();
	cs->is_wanted = cs->is_hurried = false;
	cs->round++;
	return !cs->is_stopping;
}

static void *watch(void *arg)
{
	struct commons *cs = arg;
	int64_t now;

	while (await_round(cs, &now)) {
		struct commoner *o;

		let_all_leave(cs);
		while ((o = take_due(cs, now)))
			look_at(cs, o);
		let_all_leave(cs);
	}
	end_thread(cs);
	return NULL;
}

void commons_check(struct commons *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->is_wanted = true;
	pthread_cond_broadcast(&cs->changed);
}

/* ---- entering ---- */

static int enlist(struct common *c, struct commoner *o)
{
	struct commons *cs = c->cs;
	bool starts;

	pthread_mutex_lock(&cs->lock);
	if (c->state != OPEN) {
		pthread_mutex_unlock(&cs->lock);
		return -ENOTCONN;
	}
	list_add_tail(&c->members, &o->link);
	c->holds++;
	cs->count++;
	starts = !cs->is_watched;
	cs->is_watched = true;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	if (starts && start_thread(cs, watch, cs) < 0) {
		log_warn("no thread to look for what is unmounted: it goes with its whole file system");
		pthread_mutex_lock(&cs->lock);
		cs->is_watched = false;
		pthread_mutex_unlock(&cs->lock);
	}
	return 0;
}

static void delist(struct commoner *o)
{
	struct common *c = o->common;

	pthread_mutex_lock(&c->cs->lock);
	list_del(&o->link);
	c->cs->count--;
	pthread_cond_broadcast(&c->cs->changed);
	pthread_mutex_unlock(&c->cs->lock);
	free(o);
	common_release(c);
}

int commons_enter(struct common *c, struct mount *m, void *owner, const uint32_t *secret, struct commoner **ret)
{
	struct commoner *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->common = c;
	o->owner = owner;
	o->mountpoint = m->opts.mountpoint;
	list_init(&o->link);
	/* From here on the gathering's session stays. */
	r = enlist(c, o);
	if (r < 0) {
		free(o);
		return r;
	}
	r = gather_join(c->gather, m, o, secret, &o->gathered);
	if (r < 0) {
		delist(o);
		return r;
	}
	/* Its client may be just about to bind it; should it be looked for all the same, that asks again. */
	if (secret && !gather_is_used(o->gathered))
		o->next_ms = clock_ms() + ELSEWHERE_MS;
	*ret = o;
	return 0;
}

uint32_t commons_number(const struct commoner *o)
{
	return gather_number(o->gathered);
}

bool commons_describe(const struct commoner *o, struct dossier *ret)
{
	ret->group = o->common->key;
	ret->secret = gather_secret(o->gathered);
	return o->common->kept.is_kept;
}

/* Its owner may be gone when this returns. */
static void settle(struct commoner *o)
{
	struct common *c = o->common;
	struct commons *cs = c->cs;
	bool is_over;

	pthread_mutex_lock(&cs->lock);
	*(o->mount_ns ? &o->is_bound : &o->is_abandoned) = true;
	is_over = c->state == OVER;
	c->holds++;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	if (is_over)
		let_leave(c);
	common_release(c);
}

void commons_bound(struct commoner *o, ino_t mount_ns)
{
	const bool is_used = gather_is_used(o->gathered);

	pthread_mutex_lock(&o->common->cs->lock);
	/* It may have been given back between two looks at it. */
	if (is_used)
		o->is_unused = false;
	pthread_mutex_unlock(&o->common->cs->lock);
	o->mount_ns = mount_ns ? mount_ns : (ino_t)-1;
	settle(o);
}

void commons_abandon(struct commoner *o)
{
	o->mount_ns = 0;
	settle(o);
}

void commons_evict(struct commoner *o)
{
	LOCK_SCOPE(&o->common->cs->lock);
	o->is_wanted = o->common->cs->is_wanted = true;
	pthread_cond_broadcast(&o->common->cs->changed);
}

static void *end_one(void *arg)
{
	struct common *c = arg;
	struct commons *cs = c->cs;

	if (pool_end(cs->pool, c->number, END_WAIT_MS) < 0)
		log_error("%s: a request does not end", c->mount.opts.mountpoint);
	common_release(c);
	end_thread(cs);
	return NULL;
}

/* One that is served, held; it is over now. */
static struct common *take_open(struct commons *cs)
{
	LOCK_SCOPE(&cs->lock);
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct common *c = common_of(l);

		if (c->state == OPEN) {
			c->state = OVER;
			c->holds++;
			return c;
		}
	}
	return NULL;
}

void commons_end_all(struct commons *cs)
{
	struct common *c;

	while ((c = take_open(cs)))
		run(cs, end_one, c);
}
