// SPDX-License-Identifier: Apache-2.0
/* A mount is in the list from roster_start until the pool says that it is over. It is freed on a thread of its own,
 * which first waits for those who have it pinned: they look at it, and never wait for a mount. */
#include "veneer/roster.h"

#include "veneer/cleanup.h"
#include "veneer/intent.h"
#include "veneer/keeper.h"
#include "veneer/kept.h"
#include "veneer/list.h"
#include "veneer/log.h"
#include "veneer/mountinfo.h"
#include "veneer/pool.h"
#include "veneer/takeover.h"
#include "veneer/thin.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define THREADS_MAX 64u
#define END_WAIT_MS 5000u
#define STACK_SIZE (256u << 10)

struct served {
	struct list_link link;
	struct roster *roster;
	struct mount mount;
	struct served_place at;
	uint64_t number;	/* in the pool */
	uint64_t id;		/* of ours, never used twice */
	uint32_t kept_as;	/* keeper.h's number of it; 0: none */
	uint32_t thinned_as;	/* thin.h's, likewise */
	int takeover_fd;
	struct commoner *commoner;	/* NULL: it has a file system of its own */
	struct kept kept;
	bool has_mount;		/* to be closed */
	bool is_unkept;		/* the next server will not have it */
	/* guarded by the roster's lock */
	unsigned pins;
	bool is_ending;
};

struct roster {
	void (*changed)(void *arg);
	void *arg;
	struct ledger *ledger;	/* NULL: none */
	struct pool *pool;
	struct commons *commons;
	int epoll_fd;
	pthread_mutex_t lock;
	pthread_cond_t unpinned;
	/* guarded by lock */
	struct list_link started;
	size_t count;		/* those not started, and those being closed, too */
	unsigned endings;	/* threads of start_ending */
	uint64_t next_id;
};

static struct served *served_of(struct list_link *l)
{
	return (struct served *)((char *)l - offsetof(struct served, link));
}

static void commoner_ended(void *owner);

int roster_new(void (*changed)(void *arg), void *arg, struct ledger *ledger, struct roster **ret)
{
	struct roster *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	/* Where a sanitizer has its own allocator, glibc's begins with this, and two threads that began it at once
	 * would end it twice. */
	malloc_trim(0);
	r->changed = changed;
	r->arg = arg;
	r->ledger = ledger;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	err = r->epoll_fd < 0 ? -errno : pool_new(THREADS_MAX, &r->pool);
	if (err == 0)
		err = commons_new(r->pool, ledger, commoner_ended, &r->commons);
	if (err < 0) {
		pool_free(r->pool);
		closep(&r->epoll_fd);
		free(r);
		return err;
	}
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->unpinned, NULL);
	list_init(&r->started);
	*ret = r;
	return 0;
}

const struct mount *served_mount(const struct served *s)
{
	return &s->mount;
}

int roster_fd(const struct roster *r)
{
	return r->epoll_fd;
}

size_t roster_count(struct roster *r)
{
	LOCK_SCOPE(&r->lock);
	return r->count;
}

/* The last one says so under the lock: the roster may be gone right after it. */
static void note_count(struct roster *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->count += (size_t)change;
	if (change < 0)
		r->changed(r->arg);
}

static void note_ending(struct roster *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->endings += (unsigned)change;
}

static bool has_endings(struct roster *r)
{
	LOCK_SCOPE(&r->lock);
	return r->endings > 0;
}

void roster_free(struct roster *r)
{
	if (!r)
		return;
	commons_free(r->commons);
	while (pool_count(r->pool) > 0 || has_endings(r))
		usleep(1000);
	pool_free(r->pool);
	close(r->epoll_fd);
	pthread_cond_destroy(&r->unpinned);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void roster_drop(struct roster *r, struct served *s)
{
	const char *about = log_about(s->has_mount ? s->mount.opts.mountpoint : NULL);

	kept_drop(&s->kept);
	closep(&s->takeover_fd);
	if (s->has_mount)
		mount_close(&s->mount);
	log_about(about);
	dossier_release(&s->kept.dossier);
	free(s);
	note_count(r, -1);
}

void roster_expect(struct roster *r, int change)
{
	note_count(r, change);
}

/* d is taken over; on failure it is counted no more. */
static struct served *served_new(struct roster *r, struct dossier *d)
{
	struct served *s = calloc(1, sizeof(*s));

	if (!s) {
		dossier_release(d);
		note_count(r, -1);
		return NULL;
	}
	list_init(&s->link);
	s->roster = r;
	s->takeover_fd = -1;
	s->kept.ledger = r->ledger;
	s->kept.dossier = *d;
	dossier_init(d);
	return s;
}

int roster_open(struct roster *r, struct mount_opts *opts, struct mount_dirs *dirs, struct dossier *d, struct served **ret,
		char *err, size_t err_size)
{
	struct served *s;
	int e;

	note_count(r, 1);
	s = served_new(r, d);
	e = s ? 0 : -ENOMEM;
	if (s && r->ledger)
		e = dossier_keep_dirs(&s->kept.dossier, dirs);
	if (e < 0) {
		snprintf(err, err_size, "cannot keep the directories: %s", strerror(-e));
		options_release(opts);
		dirs_release(dirs);
	} else {
		s->has_mount = true;
		e = mount_open_at(&s->mount, opts, dirs, err, err_size);
		s->mount.key = r->ledger ? ledger_key(r->ledger) : 0;
	}
	if (e < 0 && s)
		roster_drop(r, s);
	if (e == 0)
		*ret = s;
	return e;
}

/* Nobody manages its pages any more. Only with a supervisor did somebody: dropping pages may wait for a READ, and if
 * this server dies with it, another must be there to answer that. */
static void leave_keeper(struct served *s)
{
	atomic_store(&s->mount.sent_as, 0);
	keeper_leave(s->kept_as);
	thin_leave(s->thinned_as);
}

static void withdraw(struct served *s)
{
	struct roster *r = s->roster;

	leave_keeper(s);
	kept_drop(&s->kept);
	/* Else it would go on telling of an ask that nobody takes. */
	if (s->takeover_fd >= 0)
		epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, s->takeover_fd, NULL);
	LOCK_SCOPE(&r->lock);
	list_del(&s->link);
	while (s->pins)
		pthread_cond_wait(&r->unpinned, &r->lock);
}

/* Called by the pool, on a thread of its own; closing may sync for long. */
static void session_ended(struct session *session, void *arg)
{
	struct served *s = arg;

	withdraw(s);
	session_free(session);
	roster_drop(s->roster, s);
	/* A mount may have known a hundred thousand files; the others need the memory. */
	malloc_trim(0);
}

/* The same for a part of a file system. */
static void commoner_ended(void *owner)
{
	struct served *s = owner;

	withdraw(s);
	roster_drop(s->roster, s);
	malloc_trim(0);
}

/* A file system without fifos does without. */
static void listen_for_others(struct roster *r, struct served *s)
{
	struct epoll_event e = { .events = EPOLLIN };

	pthread_mutex_lock(&r->lock);
	e.data.u64 = s->id = ++r->next_id;
	pthread_mutex_unlock(&r->lock);
	if (s->mount.tree.upper && takeover_listen(s->mount.tree.workfd, 0, &s->takeover_fd) == 0 &&
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, s->takeover_fd, &e) < 0)
		log_debug("%s: %s", s->mount.opts.mountpoint, strerror(errno));
}

static void enlist(struct roster *r, struct served *s)
{
	LOCK_SCOPE(&r->lock);
	list_add_tail(&r->started, &s->link);
	s->pins = 1;
}

static void unpin(struct served *s)
{
	LOCK_SCOPE(&s->roster->lock);
	if (--s->pins == 0)
		pthread_cond_broadcast(&s->roster->unpinned);
}

/* Without it this one serves the mount all the same. */
static void keep(struct served *s, int fuse_fd, const void *init, size_t len)
{
	struct dossier *d = &s->kept.dossier;
	int e;

	d->dev_major = s->at.dev_major;
	d->dev_minor = s->at.dev_minor;
	d->mount_ns = s->at.mount_ns;
	e = kept_write(&s->kept, &s->mount, fuse_fd, init, len);
	s->is_unkept = e < 0;
	if (e < 0)
		log_warn("%s: should the server die, this mount will be gone: %s", s->mount.opts.mountpoint, strerror(-e));
}

static void enter_keeper(struct served *s)
{
	int e;

	if (s->kept.is_kept && (e = thin_enter(&s->mount.tree, s->kept.dossier.fuse_fd, &s->thinned_as)) < 0)
		log_warn("%s: its inodes are not limited: %s", s->mount.opts.mountpoint, strerror(-e));
	if (!s->kept.is_kept || s->mount.io != IO_CACHED || s->mount.opts.copies == OPTIONS_COPIES_ALL)
		return;
	/* The dossier's: the next server has the same under this number. */
	e = keeper_enter(&s->mount.tree, s->kept.dossier.fuse_fd, s->mount.opts.copies, &s->kept_as);
	if (e == 0)
		atomic_store(&s->mount.sent_as, s->kept_as);
	else
		log_warn("%s: the page cache is not managed: %s", s->mount.opts.mountpoint, strerror(-e));
}

/* In the pool from now on. */
static int enter_pool(struct roster *r, struct served *s, struct session *session, char *err, size_t err_size)
{
	int e;

	listen_for_others(r, s);
	enter_keeper(s);
	/* Pinned: it may be over before its number is known. */
	enlist(r, s);
	e = pool_add(r->pool, session, session_ended, s, &s->number);
	if (e == 0)
		session_clear_doubts(session, s->kept.dossier.fuse_fd);
	unpin(s);
	if (e < 0) {
		snprintf(err, err_size, "cannot start a thread: %s", strerror(-e));
		withdraw(s);
		session_free(session);
	}
	return e;
}

int roster_start(struct roster *r, struct served *s, int fuse_fd, const struct served_place *at, char *err,
		 size_t err_size)
{
	const char *about = log_about(s->mount.opts.mountpoint);
	struct session *session;
	const void *init;
	size_t len;
	int e;

	s->at = *at;
	e = session_start(&s->mount, fuse_fd, &session, err, err_size);
	if (e == 0)
		mount_learn(&s->mount);
	if (e == 0 && r->ledger) {
		init = session_init(session, &len);
		keep(s, fuse_fd, init, len);
	}
	log_about(about);
	if (e < 0)
		return e;
	return enter_pool(r, s, session, err, err_size);
}

int roster_seek(struct roster *r, struct served *s, pid_t opener, struct common **ret, int *ret_fd)
{
	return commons_seek(r->commons, &s->mount, &s->kept.dossier, opener, ret, ret_fd);
}

int roster_enter(struct roster *r, struct served *s, struct common *c, ino_t mount_ns, uint32_t *ret_number, char *err,
		 size_t err_size)
{
	int e = commons_enter(c, &s->mount, s, NULL, &s->commoner);

	if (e < 0) {
		snprintf(err, err_size, "cannot share its pages: %s", strerror(-e));
		return e;
	}
	*ret_number = commons_number(s->commoner);
	s->at.mount_ns = mount_ns;
	/* Before its client knows where to find it: it may be bound, and we not hear of it any more. */
	if (commons_describe(s->commoner, &s->kept.dossier))
		keep(s, -1, NULL, 0);
	else
		s->is_unkept = true;
	mount_learn(&s->mount);
	listen_for_others(r, s);
	enlist(r, s);
	unpin(s);
	return 0;
}

void roster_bound(struct served *s, bool is_bound)
{
	if (is_bound)
		commons_bound(s->commoner, s->at.mount_ns);
	else
		commons_abandon(s->commoner);
}

void roster_check(struct roster *r)
{
	commons_check(r->commons);
}

size_t roster_count_unkept(struct roster *r)
{
	size_t n = 0;

	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next)
		n += served_of(l)->is_unkept;
	return n;
}

static int resume_alone(struct roster *r, struct served *s, char *err, size_t err_size)
{
	const struct dossier *d = &s->kept.dossier;
	struct session *session;
	int e = kept_reopen(&s->kept, NULL, &s->mount, &s->has_mount, err, err_size);

	if (e < 0)
		return e;
	intent_settle(&s->mount);
	e = session_resume(&s->mount, d->fuse_fd, d->init.data, d->init.len, (enum io_mode)d->io, &session, err, err_size);
	return e ?: enter_pool(r, s, session, err, err_size);
}

/* One of several of a file system. Requests for it wait meanwhile. */
static int resume_part(struct roster *r, struct served *s, char *err, size_t err_size)
{
	struct dossier *d = &s->kept.dossier;
	struct common *c;
	int e = commons_resume(r->commons, d->group, &c, err, err_size);

	if (e < 0)
		return e;
	e = kept_reopen(&s->kept, commons_image(c), &s->mount, &s->has_mount, err, err_size);
	if (e == 0) {
		intent_settle(&s->mount);
		e = commons_enter(c, &s->mount, s, &d->secret, &s->commoner);
		if (e < 0)
			snprintf(err, err_size, "%s cannot be a part of what it was: %s", s->mount.opts.mountpoint, strerror(-e));
	}
	if (e < 0)
		commons_lose(c, d->key);
	commons_leave(c);
	if (e < 0)
		return e;
	listen_for_others(r, s);
	enlist(r, s);
	unpin(s);
	/* If it was not, it is mounted nowhere, and will be found so. */
	commons_bound(s->commoner, s->at.mount_ns);
	return 0;
}

/* What they have in common: it counts as no mount. */
static int resume_common(struct roster *r, struct dossier *d, char *err, size_t err_size)
{
	struct common *c;
	int e = commons_resume(r->commons, d->key, &c, err, err_size);

	dossier_forget(d);
	note_count(r, -1);
	if (e == 0)
		commons_leave(c);
	/* One of its parts may have found it gone. */
	return e == 0 || e == -ENOENT ? 1 : e;
}

int roster_resume(struct roster *r, struct dossier *d, uint32_t place, char *err, size_t err_size)
{
	struct served *s;
	int e;

	snprintf(err, err_size, "out of memory");
	if (dossier_is_common(d))
		return resume_common(r, d, err, err_size);
	s = served_new(r, d);
	if (!s) {
		ledger_drop(r->ledger, place);
		return -ENOMEM;
	}
	s->kept.place = place;
	s->kept.is_kept = true;
	d = &s->kept.dossier;
	s->at = (struct served_place){ d->dev_major, d->dev_minor, (ino_t)d->mount_ns };
	e = d->group ? resume_part(r, s, err, err_size) : resume_alone(r, s, err, err_size);
	if (e < 0)
		roster_drop(r, s);
	return e;
}

void roster_resumed(struct roster *r)
{
	commons_lose_rest(r->commons);
}

struct ending {
	struct roster *roster;
	uint64_t number;
	uint32_t kept_as, thinned_as; /* as in struct served */
	char *mountpoint;
};

static void *end_one(void *arg)
{
	struct ending *e = arg;

	/* While requests are answered. */
	keeper_leave(e->kept_as);
	thin_leave(e->thinned_as);
	if (pool_end(e->roster->pool, e->number, END_WAIT_MS) < 0)
		log_error("%s: a request does not end", e->mountpoint);
	note_ending(e->roster, -1);
	free(e->mountpoint);
	free(e);
	return NULL;
}

static bool is_ending_already(struct served *s)
{
	bool was_ending;

	LOCK_SCOPE(&s->roster->lock);
	was_ending = s->is_ending;
	s->is_ending = true;
	return was_ending;
}

/* On a thread of its own: a request that does not end must not hold up who asks. Waited for only where no thread can
 * be had. */
static void start_ending(struct served *s)
{
	struct ending *e;
	pthread_attr_t attr;
	pthread_t thread;

	if (is_ending_already(s))
		return;
	e = calloc(1, sizeof(*e));
	if (!e || !(e->mountpoint = strdup(s->mount.opts.mountpoint))) {
		free(e);
		leave_keeper(s);
		pool_end(s->roster->pool, s->number, 0);
		return;
	}
	note_ending(s->roster, 1);
	e->roster = s->roster;
	e->number = s->number;
	atomic_store(&s->mount.sent_as, 0);
	e->kept_as = s->kept_as;
	e->thinned_as = s->thinned_as;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, end_one, e) != 0)
		end_one(e);
	pthread_attr_destroy(&attr);
}

/* The next that is started and has an id above this, pinned, or NULL. */
static struct served *pin_after(struct roster *r, uint64_t id, bool is_exact)
{
	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next) {
		struct served *s = served_of(l);

		if (is_exact ? s->id == id : s->id > id) {
			s->pins++;
			return s;
		}
	}
	return NULL;
}

void roster_each(struct roster *r, void (*fn)(struct mount *m, const struct served_place *at, void *arg), void *arg)
{
	struct served *s;
	uint64_t id = 0;

	while ((s = pin_after(r, id, false))) {
		id = s->id;
		fn(&s->mount, &s->at, arg);
		unpin(s);
	}
}

void roster_end_all(struct roster *r)
{
	struct served *s;
	uint64_t id = 0;

	commons_end_all(r->commons);
	while ((s = pin_after(r, id, false))) {
		id = s->id;
		if (!s->commoner)
			start_ending(s);
		unpin(s);
	}
}

/* Whoever mounts the upper anew knows that its last user is of the past. A mount that can be seen is not given up. */
static void answer_ask(struct served *s)
{
	const struct layer *upper = s->mount.tree.upper;

	if (!takeover_is_asked(s->takeover_fd, upper->dev, upper->ino))
		return;
	if (s->commoner) {
		commons_evict(s->commoner);
		return;
	}
	if (!mountinfo_lacks(s->at.mount_ns, s->at.dev_major, s->at.dev_minor))
		return;
	log_warn("%s is detached but in use, and another mount wants its upper; ending", s->mount.opts.mountpoint);
	start_ending(s);
}

void roster_make_room(struct roster *r)
{
	struct epoll_event e;

	if (epoll_wait(r->epoll_fd, &e, 1, 0) == 1) {
		struct served *s = pin_after(r, e.data.u64, true);

		if (!s)
			return;
		answer_ask(s);
		unpin(s);
	}
}
