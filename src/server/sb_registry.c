// SPDX-License-Identifier: Apache-2.0
/* States of a shared superblock:
 *
 * FORMING   its founder has gone to mount it; other mounts that belong there wait
 * OPEN      served
 * OVER      its file system is gone, or never existed; it cannot be found any more, and is freed
 *           when the last member has left
 *
 * A member is entered, then bound or abandoned, then perhaps forgotten (the kernel was told), and
 * leaves when the kernel has given its root back or the superblock is over. Lock order: the lock
 * of struct shared_sb before this one. */
#include "sb_registry-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS SB_REGISTRY_TICK_MS
#define ELSEWHERE_MS \
	2000 /* one that is mounted in other namespaces only is looked for less often */
#define FORMING_MS  2000 /* then the founder is taken for stuck, and is not waited for */
#define END_WAIT_MS 5000u
#define STACK_SIZE  (256u << 10)

static struct hosted_member *hosted_member_of(struct list_link *l)
{
	return container_of(l, struct hosted_member, link);
}

static void wait_locked(struct sb_registry *cs, unsigned ms)
{
	clock_wait(&cs->changed, &cs->lock, clock_ms() + ms);
}

bool sb_registry_is_built(void)
{
	return true;
}

int sb_registry_new(struct pool *pool, struct supervisor_state *supervisor_state,
		    void (*ended)(void *owner), struct sb_registry **ret)
{
	struct sb_registry *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->pool = pool;
	cs->supervisor_state = supervisor_state;
	cs->ended = ended;
	pthread_mutex_init(&cs->lock, NULL);
	pthread_cond_init(&cs->changed, NULL);
	list_init(&cs->all);
	*ret = cs;
	return 0;
}

void sb_registry_free(struct sb_registry *cs)
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
static int start_thread(struct sb_registry *cs, void *(*fn)(void *arg), void *arg)
{
	int r;

	pthread_mutex_lock(&cs->lock);
	cs->threads++;
	pthread_mutex_unlock(&cs->lock);
	r = thread_start(fn, arg, STACK_SIZE);
	if (r < 0) {
		LOCK_SCOPE(&cs->lock);
		cs->threads--;
		pthread_cond_broadcast(&cs->changed);
	}
	return r;
}

/* Run fn on a thread, or here where there is none to be had. */
static void run(struct sb_registry *cs, void *(*fn)(void *arg), void *arg)
{
	if (start_thread(cs, fn, arg) == 0)
		return;
	pthread_mutex_lock(&cs->lock);
	cs->threads++;
	pthread_mutex_unlock(&cs->lock);
	fn(arg);
}

/* ---- one shared superblock ---- */

static void hold(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	c->holds++;
}

static void end_thread(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->threads--;
	pthread_cond_broadcast(&cs->changed);
}

static bool is_last_release(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	if (--c->holds > 0)
		return false;
	list_del(&c->link);
	/* sb_registry_end_all waits for this thread. */
	c->cs->threads++;
	return true;
}

/* Give up a hold; with the last one the superblock is freed. It is over by then, or the pool would
 * hold it. */
void sb_registry_sb_release(struct hosted_sb *c)
{
	struct sb_registry *cs = c->cs;
	struct hosted_member *last;

	if (!is_last_release(c))
		return;
	last = c->last;
	shared_sb_free(c->shared_sb);
	if (c->has_mount)
		mount_close(&c->mount);
	saved_mount_release(&c->kept);
	free(c);
	if (last)
		cs->ended(last->owner);
	free(last);
	end_thread(cs);
}

void sb_registry_note_unused(void *owner)
{
	struct hosted_member *o = owner;

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

	mount_dirs_init(ret);
	ret->opener = opener;
	for (size_t i = 0; r == 0 && i < n; i++) {
		int fd = fcntl(layers[i]->rootfd, F_DUPFD_CLOEXEC, 3);

		r = fd < 0 ? -errno : mount_dirs_add_lower(ret, fd);
	}
	return r;
}

/* For the next server: what one of them was asked for with, without what is its own. */
static int keep_asked(struct hosted_sb *c, const struct mount_record *asked)
{
	struct mount_dirs dirs = asked->dirs;
	struct mount_record *d = &c->kept.mount_record;

	if (!c->cs->supervisor_state)
		return 0;
	dirs.upper = dirs.work = -1;
	c->key = c->mount.key = d->key = d->group = supervisor_state_key(c->cs->supervisor_state);
	d->argc = asked->argc;
	d->flags = asked->flags;
	return buf_put(&d->args, asked->args.data, asked->args.len)
		       ?: mount_record_keep_dirs(d, &dirs);
}

static int open_common_mount(struct hosted_sb *c, const struct mount *m,
			     const struct mount_record *asked, pid_t opener)
{
	struct mount_opts opts = { 0 };
	struct mount_dirs dirs;
	char err[512] = "";
	int r = open_dirs(m, opener, &dirs);

	if (r == 0)
		r = options_common(&m->opts, &opts);
	if (r < 0) {
		mount_dirs_release(&dirs);
		return r;
	}
	c->has_mount = true;
	r = mount_open_at(&c->mount, &opts, &dirs, err, sizeof(err));
	/* A layer has changed just now, or is for one mount alone. */
	if (r == 0 && c->mount.tree.image != m->tree.image)
		r = -EOPNOTSUPP;
	if (r == 0)
		r = keep_asked(c, asked);
	if (r == 0)
		r = shared_sb_new(&c->mount, -1, sb_registry_note_unused, &c->shared_sb);
	if (r < 0)
		log_debug("%s: no shared superblock: %s", m->opts.mountpoint,
			  *err ? err : strerror(-r));
	return r;
}

struct hosted_sb *sb_registry_sb_new(struct sb_registry *cs)
{
	struct hosted_sb *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cs = cs;
	c->kept.supervisor_state = cs->supervisor_state;
	mount_record_init(&c->kept.mount_record);
	c->state = FORMING;
	c->holds = 1;
	list_init(&c->link);
	list_init(&c->members);
	return c;
}

/* Others found one among themselves. It may still open, and then is one beside that. */
static bool is_stuck(const struct hosted_sb *c)
{
	return c->state == FORMING && clock_ms() - c->since_ms >= FORMING_MS;
}

static struct hosted_sb *find_locked(struct sb_registry *cs, const struct mount *m)
{
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct hosted_sb *c = common_of(l);

		if (c->state != OVER && !c->is_left && !is_stuck(c) &&
		    c->mount.tree.image == m->tree.image &&
		    options_agree(&c->mount.opts, &m->opts) &&
		    !(c->state == OPEN && shared_sb_has_ended(c->shared_sb)))
			return c;
	}
	return NULL;
}

/* Find an open superblock, held; -EAGAIN: there is none. */
static int seek_open(struct sb_registry *cs, const struct mount *m, struct hosted_sb **ret,
		     int *ret_fd)
{
	struct hosted_sb *c;

	LOCK_SCOPE(&cs->lock);
	while ((c = find_locked(cs, m)) && c->state == FORMING)
		wait_locked(cs, TICK_MS);
	if (!c)
		return -EAGAIN;
	*ret_fd = fcntl(c->kept.mount_record.fuse_fd, F_DUPFD_CLOEXEC, 3);
	if (*ret_fd < 0)
		return -errno;
	c->holds++;
	*ret = c;
	return 0;
}

/* False: another thread was faster. */
static bool publish(struct sb_registry *cs, struct hosted_sb *c)
{
	LOCK_SCOPE(&cs->lock);
	c->since_ms = clock_ms();
	if (find_locked(cs, &c->mount))
		c->state = OVER;
	list_add_tail(&cs->all, &c->link);
	return c->state == FORMING;
}

int sb_registry_seek(struct sb_registry *cs, struct mount *m, const struct mount_record *asked,
		     pid_t opener, struct hosted_sb **ret, int *ret_fd)
{
	struct hosted_sb *c;
	int r;

	if (!m->tree.upper || m->opts.share != SHARE_PAGES || m->opts.io != IO_CACHED)
		return -EOPNOTSUPP;
	for (;;) {
		r = seek_open(cs, m, ret, ret_fd);
		if (r != -EAGAIN)
			return r;
		c = sb_registry_sb_new(cs);
		r = c ? open_common_mount(c, m, asked, opener) : -ENOMEM;
		if (r < 0 && c)
			sb_registry_sb_release(c);
		if (r < 0)
			return r;
		if (publish(cs, c))
			break;
		sb_registry_sb_release(c);
	}
	*ret = c;
	*ret_fd = -1;
	return 0;
}

static void set_state(struct hosted_sb *c, enum state state)
{
	LOCK_SCOPE(&c->cs->lock);
	c->state = state;
	pthread_cond_broadcast(&c->cs->changed);
}

void sb_registry_leave(struct hosted_sb *c)
{
	pthread_mutex_lock(&c->cs->lock);
	if (c->state == FORMING)
		c->state = OVER;
	pthread_cond_broadcast(&c->cs->changed);
	pthread_mutex_unlock(&c->cs->lock);
	sb_registry_sb_release(c);
}

/* ---- leaving ---- */

static void *leave_one(void *arg)
{
	struct hosted_member *o = arg;
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;
	bool is_last;

	sb_member_leave(o->sb_member);
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
	sb_registry_sb_release(c);
	end_thread(cs);
	return NULL;
}

/* Take a member that is to leave, marked; NULL: none. */
static struct hosted_member *take_leaving(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	for (struct list_link *l = c->members.next; l != &c->members; l = l->next) {
		struct hosted_member *o = hosted_member_of(l);

		if (!o->is_leaving && (o->is_bound || o->is_abandoned) &&
		    (o->is_unused || c->state == OVER)) {
			o->is_leaving = true;
			return o;
		}
	}
	return NULL;
}

static void let_leave(struct hosted_sb *c)
{
	struct hosted_member *o;

	while ((o = take_leaving(c)))
		run(c->cs, leave_one, o);
}

/* Called by the pool, on a thread of its own. A member that is about to be bound, or is just being
 * looked for, leaves later. */
static void common_ended(struct session *session, void *arg)
{
	struct hosted_sb *c = arg;

	set_state(c, OVER);
	/* Withdraw it while it can still be found: a thread that resumed it from the supervisor
	 * state would have its descriptors, which are closed soon. */
	saved_mount_drop(&c->kept);
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
	sb_registry_sb_release(c);
}

int sb_registry_sb_serve(struct hosted_sb *c, struct session *session, char *err, size_t err_size)
{
	int r;

	hold(c);
	r = pool_add(c->cs->pool, session, common_ended, c, &c->number);
	if (r < 0) {
		snprintf(err, err_size, "cannot start a thread: %s", strerror(-r));
		session_free(session);
		sb_registry_sb_release(c);
		return r;
	}
	LOCK_SCOPE(&c->cs->lock);
	c->is_left = false;
	if (c->state == FORMING)
		c->state = OPEN;
	pthread_cond_broadcast(&c->cs->changed);
	return 0;
}

/* Where the kernel does not resend what a dead server had read, all mounts end with the server. */
static int keep_common(struct hosted_sb *c, int fuse_fd, const struct session *session)
{
	struct mount_record *d = &c->kept.mount_record;
	const void *init;
	size_t len;

	d->dev_major = c->dev_major;
	d->dev_minor = c->dev_minor;
	init = session_init(session, &len);
	if (c->cs->supervisor_state && session_is_sent_again(session)) {
		d->estale_table_fd = shared_sb_estale_fd(c->shared_sb);
		return saved_mount_write(&c->kept, &c->mount, fuse_fd, init, len);
	}
	d->fuse_fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3);
	return d->fuse_fd < 0 ? -EMFILE : -EOPNOTSUPP;
}

int sb_registry_found(struct hosted_sb *c, int fuse_fd, unsigned dev_major, unsigned dev_minor,
		      char *err, size_t err_size)
{
	struct session *session;
	int r;

	c->dev_major = dev_major;
	c->dev_minor = dev_minor;
	shared_sb_note_device(c->shared_sb, dev_major, dev_minor);
	r = shared_sb_start(c->shared_sb, fuse_fd, &session, err, err_size);
	if (r < 0)
		return r;
	r = keep_common(c, fuse_fd, session);
	if (c->kept.mount_record.fuse_fd < 0) {
		snprintf(err, err_size, "too many open files");
		session_free(session);
		return -EMFILE;
	}
	if (r < 0 && c->cs->supervisor_state)
		log_warn("%s: cannot save its shared superblock: its mounts end if the "
			 "server dies: %s",
			 c->mount.opts.mountpoint, strerror(-r));
	return sb_registry_sb_serve(c, session, err, err_size);
}

/* ---- where they are mounted ---- */

static void *forget_one(void *arg)
{
	struct hosted_member *o = arg;
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;

	sb_member_forget(o->sb_member);
	/* The root was never looked up, or is given back already. */
	if (!sb_member_is_used(o->sb_member))
		sb_registry_note_unused(o);
	pthread_mutex_lock(&cs->lock);
	o->is_leaving = false;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	sb_registry_sb_release(c);
	end_thread(cs);
	return NULL;
}

/* A search for roots in one mount namespace, or in all. */
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

static bool is_mounted(struct hosted_member *o, bool *ret_is_elsewhere)
{
	const struct hosted_sb *c = o->common;
	struct search s = { .number = sb_member_number(o->sb_member) };

	*ret_is_elsewhere = false;
	if (mountinfo_roots(o->mount_ns, &o->seen_by, c->dev_major, c->dev_minor, note_root, &s) <
		    0 ||
	    !s.is_found) {
		*ret_is_elsewhere = true;
		/* In doubt it is. */
		if (mountinfo_roots(0, NULL, c->dev_major, c->dev_minor, note_root, &s) < 0)
			return true;
	}
	return s.is_found;
}

static bool is_due(const struct hosted_member *o, int64_t now)
{
	if (o->is_leaving || o->is_unused || o->round == o->common->cs->round)
		return false;
	return (o->is_abandoned || o->is_bound) && o->next_ms <= now;
}

/* A member whose time has come, kept from leaving, and its superblock held; NULL: none. */
static struct hosted_member *take_due(struct sb_registry *cs, int64_t now)
{
	LOCK_SCOPE(&cs->lock);
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct hosted_sb *c = common_of(l);

		for (struct list_link *k = c->members.next; k != &c->members; k = k->next) {
			struct hosted_member *o = hosted_member_of(k);

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

static void look_at(struct sb_registry *cs, struct hosted_member *o)
{
	struct hosted_sb *c = o->common;
	bool is_elsewhere = false, is_there = !o->is_abandoned && is_mounted(o, &is_elsewhere),
	     ends, is_rare;

	pthread_mutex_lock(&cs->lock);
	/* All processes are asked where its own namespace does not show it: but at once more after
	 * the first time. */
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
		log_warn("%s is detached but in use, and another mount wants its upper; ending",
			 o->mountpoint);
	if (is_there)
		sb_registry_sb_release(c);
	else
		run(cs, forget_one, o);
}

struct hosted_sb *sb_registry_hold_next(struct sb_registry *cs, struct hosted_sb *last)
{
	LOCK_SCOPE(&cs->lock);
	struct list_link *l = last ? last->link.next : cs->all.next;

	if (l == &cs->all)
		return NULL;
	common_of(l)->holds++;
	return common_of(l);
}

static void let_all_leave(struct sb_registry *cs)
{
	struct hosted_sb *c = NULL, *next;

	while ((next = sb_registry_hold_next(cs, c))) {
		if (c)
			sb_registry_sb_release(c);
		c = next;
		let_leave(c);
	}
	if (c)
		sb_registry_sb_release(c);
}

/* Until there is something to do. False: the end. */
static bool await_round(struct sb_registry *cs, int64_t *ret_now)
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
	struct sb_registry *cs = arg;
	int64_t now;

	while (await_round(cs, &now)) {
		struct hosted_member *o;

		let_all_leave(cs);
		while ((o = take_due(cs, now)))
			look_at(cs, o);
		let_all_leave(cs);
	}
	end_thread(cs);
	return NULL;
}

void sb_registry_check(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->is_wanted = true;
	pthread_cond_broadcast(&cs->changed);
}

/* ---- entering ---- */

static int enlist(struct hosted_sb *c, struct hosted_member *o)
{
	struct sb_registry *cs = c->cs;
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
		log_warn("no thread to look for unmounted roots: their mounts end with "
			 "the shared superblock");
		pthread_mutex_lock(&cs->lock);
		cs->is_watched = false;
		pthread_mutex_unlock(&cs->lock);
	}
	return 0;
}

static void delist(struct hosted_member *o)
{
	struct hosted_sb *c = o->common;

	pthread_mutex_lock(&c->cs->lock);
	list_del(&o->link);
	c->cs->count--;
	pthread_cond_broadcast(&c->cs->changed);
	pthread_mutex_unlock(&c->cs->lock);
	free(o);
	sb_registry_sb_release(c);
}

int sb_registry_enter(struct hosted_sb *c, struct mount *m, void *owner, const uint32_t *secret,
		      struct hosted_member **ret)
{
	struct hosted_member *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->common = c;
	o->owner = owner;
	o->mountpoint = m->opts.mountpoint;
	list_init(&o->link);
	/* From here on the session of the superblock stays. */
	r = enlist(c, o);
	if (r < 0) {
		free(o);
		return r;
	}
	r = sb_member_join(c->shared_sb, m, o, secret, &o->sb_member);
	if (r < 0) {
		delist(o);
		return r;
	}
	/* Its client may be just about to bind it; a search that comes all the same asks again. */
	if (secret && !sb_member_is_used(o->sb_member))
		o->next_ms = clock_ms() + ELSEWHERE_MS;
	*ret = o;
	return 0;
}

uint32_t sb_registry_number(const struct hosted_member *o)
{
	return sb_member_number(o->sb_member);
}

bool sb_registry_describe(const struct hosted_member *o, struct mount_record *ret)
{
	ret->group = o->common->key;
	ret->secret = sb_member_secret(o->sb_member);
	return o->common->kept.is_kept;
}

/* Settle a member; its owner may be gone when this returns. */
static void settle(struct hosted_member *o)
{
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;
	bool is_over;

	pthread_mutex_lock(&cs->lock);
	*(o->mount_ns ? &o->is_bound : &o->is_abandoned) = true;
	is_over = c->state == OVER;
	c->holds++;
	pthread_cond_broadcast(&cs->changed);
	pthread_mutex_unlock(&cs->lock);
	if (is_over)
		let_leave(c);
	sb_registry_sb_release(c);
}

void sb_registry_bound(struct hosted_member *o, ino_t mount_ns)
{
	const bool is_used = sb_member_is_used(o->sb_member);

	pthread_mutex_lock(&o->common->cs->lock);
	/* The root may have been given back between two looks at it. */
	if (is_used)
		o->is_unused = false;
	pthread_mutex_unlock(&o->common->cs->lock);
	o->mount_ns = mount_ns ? mount_ns : (ino_t)-1;
	settle(o);
}

void sb_registry_abandon(struct hosted_member *o)
{
	o->mount_ns = 0;
	settle(o);
}

void sb_registry_evict(struct hosted_member *o)
{
	LOCK_SCOPE(&o->common->cs->lock);
	o->is_wanted = o->common->cs->is_wanted = true;
	pthread_cond_broadcast(&o->common->cs->changed);
}

static void *end_one(void *arg)
{
	struct hosted_sb *c = arg;
	struct sb_registry *cs = c->cs;

	if (pool_end(cs->pool, c->number, END_WAIT_MS) < 0)
		log_error("%s: a request does not end", c->mount.opts.mountpoint);
	sb_registry_sb_release(c);
	end_thread(cs);
	return NULL;
}

/* Take a superblock that is served, held; it is over now. */
static struct hosted_sb *take_open(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct hosted_sb *c = common_of(l);

		if (c->state == OPEN) {
			c->state = OVER;
			c->holds++;
			return c;
		}
	}
	return NULL;
}

void sb_registry_end_all(struct sb_registry *cs)
{
	struct hosted_sb *c;

	while ((c = take_open(cs)))
		run(cs, end_one, c);
}
