// SPDX-License-Identifier: Apache-2.0
/* A mount is in the list from mount_table_start until the pool says that it is over. It is freed on
 * a thread of its own, which first waits for threads that have it pinned: they look at it, and
 * never wait for a mount. */
#include "veneer/server/mount_table.h"

#include "saved_mount.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/fuse/pool.h"
#include "veneer/fuse/resend_state.h"
#include "veneer/jobs/inode_shrinker.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/mount/upper_takeover.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/thread.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define THREADS_MAX 64u
#define END_WAIT_MS 5000u
#define STACK_SIZE  (256u << 10)

struct served_mount {
	struct list_link link;
	struct mount_table *mount_table;
	struct mount mount;
	struct served_place at;
	uint64_t number; /* in the pool */
	uint64_t id; /* of ours, never used twice */
	uint32_t limiter_number; /* page_dup_limiter.h's number of it; 0: none */
	uint32_t shrinker_number; /* inode_shrinker.h's, likewise */
	int takeover_fd;
	struct hosted_member *hosted_member; /* NULL: it has a file system of its own */
	struct saved_mount kept;
	bool has_mount; /* to be closed */
	bool is_unkept; /* the next server will not have it */
	/* guarded by the table's lock */
	unsigned pins;
	bool is_ending;
};

struct mount_table {
	void (*changed)(void *arg);
	void *arg;
	struct supervisor_state *supervisor_state; /* NULL: none */
	struct pool *pool;
	struct sb_registry *commons;
	int epoll_fd;
	mutex_t lock;
	pthread_cond_t unpinned;
	GUARDED_BY(lock) struct list_link started;
	GUARDED_BY(lock) size_t count; /* those not started, and those being closed, too */
	GUARDED_BY(lock) unsigned endings; /* threads of start_ending */
	GUARDED_BY(lock) uint64_t next_id;
};

static struct served_mount *served_of(struct list_link *l)
{
	return container_of(l, struct served_mount, link);
}

static void hosted_member_ended(void *owner);

int mount_table_new(void (*changed)(void *arg), void *arg,
		    struct supervisor_state *supervisor_state, struct mount_table **ret)
{
	struct mount_table *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	/* Initialise malloc_trim now: where a sanitizer has its own allocator, glibc's begins with
	 * this, and two threads that began it at once would end it twice. */
	malloc_trim(0);
	r->changed = changed;
	r->arg = arg;
	r->supervisor_state = supervisor_state;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	err = r->epoll_fd < 0 ? -errno : pool_new(THREADS_MAX, &r->pool);
	if (err == 0)
		err = sb_registry_new(r->pool, supervisor_state, hosted_member_ended, &r->commons);
	if (err < 0) {
		pool_free(r->pool);
		closep(&r->epoll_fd);
		free(r);
		return err;
	}
	mutex_init(&r->lock);
	pthread_cond_init(&r->unpinned, NULL);
	list_init(&r->started);
	*ret = r;
	return 0;
}

const struct mount *mount_table_mount(const struct served_mount *s)
{
	return &s->mount;
}

int mount_table_fd(const struct mount_table *r)
{
	return r->epoll_fd;
}

size_t mount_table_count(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	return r->count;
}

/* The last mount says so under the lock: the table may be gone right after it. */
static void note_count(struct mount_table *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->count += (size_t)change;
	if (change < 0)
		r->changed(r->arg);
}

static void note_ending(struct mount_table *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->endings += (unsigned)change;
}

static bool has_endings(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	return r->endings > 0;
}

void mount_table_free(struct mount_table *r)
{
	if (!r)
		return;
	sb_registry_free(r->commons);
	while (pool_count(r->pool) > 0 || has_endings(r))
		usleep(1000);
	pool_free(r->pool);
	close(r->epoll_fd);
	pthread_cond_destroy(&r->unpinned);
	mutex_destroy(&r->lock);
	free(r);
}

void mount_table_drop(struct mount_table *r, struct served_mount *s)
{
	const char *about = log_about(s->has_mount ? s->mount.opts.mountpoint : NULL);

	saved_mount_drop(&s->kept);
	closep(&s->takeover_fd);
	if (s->has_mount)
		mount_close(&s->mount);
	log_about(about);
	mount_record_release(&s->kept.mount_record);
	free(s);
	note_count(r, -1);
}

void mount_table_expect(struct mount_table *r, int change)
{
	note_count(r, change);
}

/* d is taken over; on failure it is counted no more. */
static struct served_mount *served_new(struct mount_table *r, struct mount_record *d)
{
	struct served_mount *s = calloc(1, sizeof(*s));

	if (!s) {
		mount_record_release(d);
		note_count(r, -1);
		return NULL;
	}
	list_init(&s->link);
	s->mount_table = r;
	s->takeover_fd = -1;
	s->kept.supervisor_state = r->supervisor_state;
	s->kept.mount_record = *d;
	mount_record_init(d);
	return s;
}

int mount_table_open(struct mount_table *r, struct mount_dirs *dirs, struct mount_record *d,
		     struct served_mount **ret, char *err, size_t err_size)
{
	struct mount_opts opts;
	struct served_mount *s;
	int e = mount_record_options(d, dirs, &opts, err, err_size);

	if (e < 0)
		return e;
	note_count(r, 1);
	s = served_new(r, d);
	e = s ? 0 : -ENOMEM;
	if (s && r->supervisor_state)
		e = mount_record_keep_dirs(&s->kept.mount_record, dirs);
	if (e < 0) {
		snprintf(err, err_size, "cannot keep the directories: %s", strerror(-e));
		options_release(&opts);
		mount_dirs_release(dirs);
	} else {
		s->has_mount = true;
		e = mount_open_at(&s->mount, &opts, dirs, err, err_size);
		s->mount.key = r->supervisor_state ? supervisor_state_key(r->supervisor_state) : 0;
	}
	if (e < 0 && s)
		mount_table_drop(r, s);
	if (e == 0)
		*ret = s;
	return e;
}

/* Take the mount out of page management. Only mounts with a supervisor were in it: dropping pages
 * may wait for a READ, and if this server dies with it, another must be there to answer that. */
static void leave_jobs(struct served_mount *s)
{
	atomic_store(&s->mount.page_dup_number, 0);
	page_dup_limiter_leave(s->limiter_number);
	inode_shrinker_leave(s->shrinker_number);
}

static void withdraw(struct served_mount *s)
{
	struct mount_table *r = s->mount_table;

	leave_jobs(s);
	saved_mount_drop(&s->kept);
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
	struct served_mount *s = arg;

	withdraw(s);
	session_free(session);
	mount_table_drop(s->mount_table, s);
	/* A mount may have known a hundred thousand files; the others need the memory. */
	malloc_trim(0);
}

/* The same for a part of a file system. */
static void hosted_member_ended(void *owner)
{
	struct served_mount *s = owner;

	withdraw(s);
	mount_table_drop(s->mount_table, s);
	malloc_trim(0);
}

/* A file system without fifos does without. */
static void listen_for_others(struct mount_table *r, struct served_mount *s)
{
	struct epoll_event e = { .events = EPOLLIN };

	mutex_lock(&r->lock);
	e.data.u64 = s->id = ++r->next_id;
	mutex_unlock(&r->lock);
	if (s->mount.tree.upper &&
	    upper_takeover_listen(s->mount.tree.workfd, 0, &s->takeover_fd) == 0 &&
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, s->takeover_fd, &e) < 0)
		log_debug("%s: %s", s->mount.opts.mountpoint, strerror(errno));
}

static void enlist(struct mount_table *r, struct served_mount *s)
{
	LOCK_SCOPE(&r->lock);
	list_add_tail(&r->started, &s->link);
	s->pins = 1;
}

static void unpin(struct served_mount *s)
{
	LOCK_SCOPE(&s->mount_table->lock);
	if (--s->pins == 0)
		pthread_cond_broadcast(&s->mount_table->unpinned);
}

/* Without it this one serves the mount all the same. */
static void keep(struct served_mount *s, int fuse_fd, const void *init, size_t len)
{
	struct mount_record *d = &s->kept.mount_record;
	int e;

	d->dev_major = s->at.dev_major;
	d->dev_minor = s->at.dev_minor;
	d->mount_ns = s->at.mount_ns;
	e = saved_mount_write(&s->kept, &s->mount, fuse_fd, init, len);
	s->is_unkept = e < 0;
	if (e < 0)
		log_warn("%s: cannot save this mount for the next server: "
			 "it ends if the server dies: %s",
			 s->mount.opts.mountpoint, strerror(-e));
}

static void enter_jobs(struct served_mount *s)
{
	int e;

	if (s->kept.is_kept &&
	    (e = inode_shrinker_enter(&s->mount.tree, s->kept.mount_record.fuse_fd,
				      &s->shrinker_number)) < 0)
		log_warn("%s: its inodes are not limited: %s", s->mount.opts.mountpoint,
			 strerror(-e));
	if (!s->kept.is_kept || s->mount.io == IO_DIRECT ||
	    s->mount.opts.copies == OPTIONS_COPIES_ALL)
		return;
	/* The descriptor of the record: the next server has the same under this number. */
	e = page_dup_limiter_enter(&s->mount.tree, s->kept.mount_record.fuse_fd,
				   s->mount.opts.copies, &s->limiter_number);
	if (e == 0)
		atomic_store(&s->mount.page_dup_number, s->limiter_number);
	else
		log_warn("%s: the page cache is not managed: %s", s->mount.opts.mountpoint,
			 strerror(-e));
}

/* In the pool from now on. */
static int enter_pool(struct mount_table *r, struct served_mount *s, struct session *session,
		      char *err, size_t err_size)
{
	int e;

	listen_for_others(r, s);
	enter_jobs(s);
	/* Pinned: it may be over before its number is known. */
	enlist(r, s);
	e = pool_add(r->pool, session, session_ended, s, &s->number);
	if (e == 0)
		session_invalidate(session, s->kept.mount_record.fuse_fd);
	unpin(s);
	if (e < 0) {
		snprintf(err, err_size, "cannot start a thread: %s", strerror(-e));
		withdraw(s);
		session_free(session);
	}
	return e;
}

int mount_table_start(struct mount_table *r, struct served_mount *s, int fuse_fd,
		      const struct served_place *at, char *err, size_t err_size)
{
	const char *about = log_about(s->mount.opts.mountpoint);
	struct session *session;
	const void *init;
	size_t len;
	int e;

	s->at = *at;
	e = session_start(&s->mount, fuse_fd, &session, err, err_size);
	if (e == 0)
		mount_start_prefetch(&s->mount);
	if (e == 0 && r->supervisor_state) {
		init = session_init(session, &len);
		keep(s, fuse_fd, init, len);
	}
	log_about(about);
	if (e < 0)
		return e;
	return enter_pool(r, s, session, err, err_size);
}

int mount_table_seek(struct mount_table *r, struct served_mount *s, pid_t opener,
		     struct hosted_sb **ret, int *ret_fd)
{
	return sb_registry_seek(r->commons, &s->mount, &s->kept.mount_record, opener, ret, ret_fd);
}

int mount_table_enter(struct served_mount *s, struct hosted_sb *c, ino_t mount_ns,
		      uint32_t *ret_number, char *err, size_t err_size)
{
	int e = sb_registry_enter(c, &s->mount, s, NULL, &s->hosted_member);

	if (e < 0) {
		snprintf(err, err_size, "cannot share its pages: %s", strerror(-e));
		return e;
	}
	*ret_number = sb_registry_number(s->hosted_member);
	s->at.mount_ns = mount_ns;
	/* Before its client knows where to find it: it may be bound, and we not hear of it any
	 * more. */
	if (sb_registry_describe(s->hosted_member, &s->kept.mount_record))
		keep(s, -1, NULL, 0);
	else
		s->is_unkept = true;
	mount_start_prefetch(&s->mount);
	listen_for_others(s->mount_table, s);
	enlist(s->mount_table, s);
	unpin(s);
	return 0;
}

void mount_table_bound(struct served_mount *s, bool is_bound)
{
	if (is_bound)
		sb_registry_bound(s->hosted_member, s->at.mount_ns);
	else
		sb_registry_abandon(s->hosted_member);
}

void mount_table_check(struct mount_table *r)
{
	sb_registry_check(r->commons);
}

size_t mount_table_count_unkept(struct mount_table *r)
{
	size_t n = 0;

	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next)
		n += served_of(l)->is_unkept;
	return n;
}

static int resume_alone(struct mount_table *r, struct served_mount *s, char *err, size_t err_size)
{
	const struct mount_record *d = &s->kept.mount_record;
	struct session *session;
	int e = saved_mount_reopen(&s->kept, NULL, &s->mount, &s->has_mount, err, err_size);

	if (e < 0)
		return e;
	resend_state_settle(&s->mount);
	e = session_resume(&s->mount,
			   &(struct session_saved){ d->fuse_fd, (enum io_mode)d->io, &d->init },
			   &session, err, err_size);
	return e ?: enter_pool(r, s, session, err, err_size);
}

/* Resume a member of a shared superblock. Requests for it wait meanwhile. */
static int resume_part(struct mount_table *r, struct served_mount *s, char *err, size_t err_size)
{
	struct mount_record *d = &s->kept.mount_record;
	struct hosted_sb *c;
	int e = sb_registry_resume(r->commons, d->group, &c, err, err_size);

	if (e < 0)
		return e;
	e = saved_mount_reopen(&s->kept, sb_registry_image(c), &s->mount, &s->has_mount, err,
			       err_size);
	if (e == 0) {
		resend_state_settle(&s->mount);
		e = sb_registry_enter(c, &s->mount, s, &d->secret, &s->hosted_member);
		if (e < 0)
			snprintf(err, err_size, "%s: cannot rejoin its shared superblock: %s",
				 s->mount.opts.mountpoint, strerror(-e));
	}
	if (e < 0)
		sb_registry_lose(c, d->key);
	sb_registry_leave(c);
	if (e < 0)
		return e;
	listen_for_others(r, s);
	enlist(r, s);
	unpin(s);
	/* If it was not, it is mounted nowhere, and will be found so. */
	sb_registry_bound(s->hosted_member, s->at.mount_ns);
	return 0;
}

/* Resume a common mount; it does not count as a mount. */
static int resume_common(struct mount_table *r, struct mount_record *d, char *err, size_t err_size)
{
	struct hosted_sb *c;
	int e = sb_registry_resume(r->commons, d->key, &c, err, err_size);

	mount_record_forget(d);
	note_count(r, -1);
	if (e == 0)
		sb_registry_leave(c);
	/* A member may have found it gone. */
	return e == 0 || e == -ENOENT ? 1 : e;
}

int mount_table_resume(struct mount_table *r, struct mount_record *d, uint32_t place, char *err,
		       size_t err_size)
{
	struct served_mount *s;
	int e;

	snprintf(err, err_size, "out of memory");
	if (mount_record_is_common(d))
		return resume_common(r, d, err, err_size);
	s = served_new(r, d);
	if (!s) {
		supervisor_state_drop(r->supervisor_state, place);
		return -ENOMEM;
	}
	s->kept.place = place;
	s->kept.is_kept = true;
	d = &s->kept.mount_record;
	s->at = (struct served_place){ d->dev_major, d->dev_minor, (ino_t)d->mount_ns };
	e = d->group ? resume_part(r, s, err, err_size) : resume_alone(r, s, err, err_size);
	if (e < 0)
		mount_table_drop(r, s);
	return e;
}

void mount_table_resumed(struct mount_table *r)
{
	sb_registry_lose_rest(r->commons);
}

struct ending {
	struct mount_table *mount_table;
	uint64_t number;
	uint32_t limiter_number, shrinker_number; /* as in struct served_mount */
	char *mountpoint;
};

static void *end_one(void *arg)
{
	struct ending *e = arg;

	/* While requests are answered. */
	page_dup_limiter_leave(e->limiter_number);
	inode_shrinker_leave(e->shrinker_number);
	if (pool_end(e->mount_table->pool, e->number, END_WAIT_MS) < 0)
		log_error("%s: a request does not end", e->mountpoint);
	note_ending(e->mount_table, -1);
	free(e->mountpoint);
	free(e);
	return NULL;
}

static bool is_ending_already(struct served_mount *s)
{
	bool was_ending;

	LOCK_SCOPE(&s->mount_table->lock);
	was_ending = s->is_ending;
	s->is_ending = true;
	return was_ending;
}

/* On a thread of its own: a request that does not end must not hold up the caller. Waited for only
 * where no thread can be had. */
static void start_ending(struct served_mount *s)
{
	struct ending *e;

	if (is_ending_already(s))
		return;
	e = calloc(1, sizeof(*e));
	if (!e || !(e->mountpoint = strdup(s->mount.opts.mountpoint))) {
		free(e);
		leave_jobs(s);
		pool_end(s->mount_table->pool, s->number, 0);
		return;
	}
	note_ending(s->mount_table, 1);
	e->mount_table = s->mount_table;
	e->number = s->number;
	atomic_store(&s->mount.page_dup_number, 0);
	e->limiter_number = s->limiter_number;
	e->shrinker_number = s->shrinker_number;
	if (thread_start(end_one, e, STACK_SIZE) < 0)
		end_one(e);
}

/* The next that is started and has an id above this, pinned, or NULL. */
static struct served_mount *pin_after(struct mount_table *r, uint64_t id, bool is_exact)
{
	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next) {
		struct served_mount *s = served_of(l);

		if (is_exact ? s->id == id : s->id > id) {
			s->pins++;
			return s;
		}
	}
	return NULL;
}

void mount_table_each(struct mount_table *r,
		      void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		      void *arg)
{
	struct served_mount *s;
	uint64_t id = 0;

	while ((s = pin_after(r, id, false))) {
		id = s->id;
		fn(&s->mount, &s->at, arg);
		unpin(s);
	}
}

void mount_table_end_all(struct mount_table *r)
{
	struct served_mount *s;
	uint64_t id = 0;

	sb_registry_end_all(r->commons);
	while ((s = pin_after(r, id, false))) {
		id = s->id;
		if (!s->hosted_member)
			start_ending(s);
		unpin(s);
	}
}

/* Answer a mount that wants this upper: it knows that the upper's last user is of the past. A mount
 * that can be seen is not given up. */
static void answer_ask(struct served_mount *s)
{
	const struct layer *upper = s->mount.tree.upper;

	if (!upper_takeover_is_asked(s->takeover_fd, upper->dev, upper->ino))
		return;
	if (s->hosted_member) {
		sb_registry_evict(s->hosted_member);
		return;
	}
	if (!mountinfo_lacks(s->at.mount_ns, s->at.dev_major, s->at.dev_minor))
		return;
	log_warn("%s is detached but in use, and another mount wants its upper; ending",
		 s->mount.opts.mountpoint);
	start_ending(s);
}

void mount_table_make_room(struct mount_table *r)
{
	struct epoll_event e;

	if (epoll_wait(r->epoll_fd, &e, 1, 0) == 1) {
		struct served_mount *s = pin_after(r, e.data.u64, true);

		if (!s)
			return;
		answer_ask(s);
		unpin(s);
	}
}
