// SPDX-License-Identifier: Apache-2.0
/* A mount is in the list from mount_table_start until the pool reports its end. A thread of its own
 * frees it, after it has waited for threads that have it pinned. Those only look at the mount, and
 * never wait for one. */
#include "veneer/server/mount_table.h"

#include "mount_left_over.h"
#include "served_mount.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/fuse/pool.h"
#include "veneer/fuse/resend_state.h"
#include "veneer/fuse/rollback_notify.h"
#include "veneer/fuse/session.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/mount_freeze.h"
#include "veneer/mount/upper_takeover.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/inode_rebuild.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define THREADS_MAX 64u
#define TRY_MS	    5000 /* limit for reopening a mount */
#define TRY_US	    50000
#define NOTIFY_MS   5000 /* limit for the kernel to look names up again */

/* A change to a mount between two sessions. */
struct replacement {
	const struct mount_table_step *step;
	struct inode_rebuild *rebuild; /* NULL: none */
	struct image *image; /* of the mount before the change; NULL: none */
	int result;
	bool is_done;
};

static struct served_mount *served_of(struct list_link *l)
{
	return container_of(l, struct served_mount, link);
}

static bool replace(struct served_mount *s, struct session *session);

static void take_out(struct served_mount *s)
{
	served_mount_delist(s);
	served_mount_leave_jobs(s);
}

/* For a member of a shared superblock. */
static void hosted_member_leaves(void *owner)
{
	take_out(owner);
}

static void hosted_member_ended(void *owner)
{
	struct served_mount *s = owner;

	mount_table_drop(s->mount_table, s);
	malloc_trim(0);
}

int mount_table_new(void (*changed)(void *arg), void *arg,
		    struct supervisor_state *supervisor_state, struct mount_table **ret)
{
	static const struct sb_registry_owner_calls calls = { hosted_member_leaves,
							      hosted_member_ended };
	struct mount_table *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	/* Initialise malloc_trim now. Where a sanitizer has its own allocator, glibc's starts with
	 * this call, and two threads that start it at once would initialise it twice. */
	malloc_trim(0);
	r->changed = changed;
	r->arg = arg;
	r->supervisor_state = supervisor_state;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	err = r->epoll_fd < 0 ? -errno : pool_new(THREADS_MAX, &r->pool);
	if (err == 0)
		err = sb_registry_new(r->pool, supervisor_state, &calls, &r->commons);
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

size_t mount_table_count(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	return r->count;
}

/* Call changed under the lock: the table may be freed right after it. */
static void note_count(struct mount_table *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->count += (size_t)change;
	if (change < 0)
		r->changed(r->arg);
}

void mount_table_free(struct mount_table *r)
{
	if (!r)
		return;
	sb_registry_free(r->commons);
	while (pool_count(r->pool) > 0 || served_mount_has_endings(r))
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
	saved_mount_release(&s->kept);
	free(s);
	note_count(r, -1);
}

void mount_table_expect(struct mount_table *r, int change)
{
	mutex_lock(&r->lock);
	r->is_resuming |= change > 0;
	mutex_unlock(&r->lock);
	note_count(r, change);
}

/* d is taken over; on failure the mount is no longer counted. */
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
	s->kept.work = WORKDIR_NONE;
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

static void withdraw(struct served_mount *s)
{
	take_out(s);
	saved_mount_drop(&s->kept);
}

/* The pool calls this on a thread of its own; closing the mount may sync for long. */
static void session_ended(struct session *session, void *arg)
{
	struct served_mount *s = arg;

	if (replace(s, session))
		return;
	withdraw(s);
	session_free(session);
	mount_table_drop(s->mount_table, s);
	/* Return the memory: a mount may have known a hundred thousand files. */
	malloc_trim(0);
}

/* Listen for other mounts that want the upper. On a file system without fifos they cannot ask. */
static void listen_for_others(struct mount_table *r, struct served_mount *s)
{
	struct epoll_event e = { .events = EPOLLIN };

	mutex_lock(&r->lock);
	e.data.u64 = s->at.number = s->id = ++r->next_id;
	mutex_unlock(&r->lock);
	if (s->mount.tree.upper &&
	    upper_takeover_listen(s->mount.tree.workfd, 0, &s->takeover_fd) == 0 &&
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, s->takeover_fd, &e) < 0)
		log_debug("%s: %s", s->mount.opts.mountpoint, strerror(errno));
}

/* Keep the list in the order of ids, by which it is walked; mounts resumed at the same time may
 * arrive in another order. */
static void enlist(struct mount_table *r, struct served_mount *s)
{
	struct list_link *l;

	LOCK_SCOPE(&r->lock);
	for (l = r->started.prev; l != &r->started && served_of(l)->id > s->id;)
		l = l->prev;
	list_add_head(l, &s->link);
	s->pins = 1;
}

/* Save the mount for the next server. On failure this server serves it all the same. */
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

static void allow_replacement(struct served_mount *s)
{
	struct mount_table *r = s->mount_table;
	bool ends;

	mutex_lock(&r->lock);
	s->is_pooled = true;
	/* End the new session, too, if the end was asked for during the replacement. */
	ends = s->is_replaced && (r->ends || s->is_ending);
	if (ends)
		s->is_ending = false;
	s->is_replaced = false;
	mutex_unlock(&r->lock);
	if (ends)
		served_mount_end(s);
}

static void notify_of_rollback(struct served_mount *s, struct kernel_invalidate *names)
{
	int e = rollback_notify_end(names, &s->mount, s->kept.mount_record.fuse_fd, NOTIFY_MS);

	if (e < 0)
		log_warn("%s: programs may see names as they were before the rollback: %s",
			 s->mount.opts.mountpoint, strerror(-e));
}

/* Put the mount into the pool. */
static int enter_pool(struct mount_table *r, struct served_mount *s, struct session *session,
		      char *err, size_t err_size)
{
	/* Names that a rollback changed, in this server or in one that died. */
	struct kernel_invalidate *names =
		rollback_notify_begin(&s->mount, s->kept.mount_record.fuse_fd);
	int e;

	listen_for_others(r, s);
	served_mount_enter_jobs(s);
	/* Pin it: the session may be over before its number is known. */
	enlist(r, s);
	e = pool_add(r->pool, session, session_ended, s, &s->number);
	if (e == 0) {
		session_invalidate(session, s->kept.mount_record.fuse_fd);
		allow_replacement(s);
		notify_of_rollback(s, names);
	}
	served_mount_unpin(s);
	if (e < 0) {
		rollback_notify_free(names);
		snprintf(err, err_size, "cannot start a thread: %s", strerror(-e));
		/* Memory may be short: in that case resume tries again. */
		if (s->is_replaced)
			take_out(s);
		else
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
	/* Save it before the client learns the number: after that the client may bind the root
	 * without telling us. */
	if (sb_registry_describe(s->hosted_member, &s->kept.mount_record))
		keep(s, -1, NULL, 0);
	else
		s->is_unkept = true;
	mount_start_prefetch(&s->mount);
	listen_for_others(s->mount_table, s);
	enlist(s->mount_table, s);
	served_mount_unpin(s);
	return 0;
}

void mount_table_bound(struct served_mount *s, bool is_bound)
{
	if (is_bound)
		sb_registry_bound(s->hosted_member, s->at.mount_ns);
	else
		sb_registry_abandon(s->hosted_member);
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
	served_mount_unpin(s);
	/* A member that was never bound is mounted nowhere, and the next look finds that. */
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
	/* A member may already have found it gone. */
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
	s->at = (struct served_place){ d->dev_major, d->dev_minor, (ino_t)d->mount_ns, 0 };
	e = d->group ? resume_part(r, s, err, err_size) : resume_alone(r, s, err, err_size);
	if (e < 0)
		mount_table_drop(r, s);
	return e;
}

void mount_table_resumed(struct mount_table *r)
{
	mutex_lock(&r->lock);
	r->is_resuming = false;
	pthread_cond_broadcast(&r->unpinned);
	mutex_unlock(&r->lock);
	sb_registry_lose_rest(r->commons);
}

/* ---- reopening a mount that is in use ----
 *
 * The mount is left as after a crash of the server, but users do not notice: requests wait in the
 * kernel meanwhile. If the server dies in between, the next one finds the same record. */

static void say_done_locked(struct mount_table *r, struct replacement *p, int result)
	REQUIRES(r->lock)
{
	p->result = result;
	p->is_done = true;
	pthread_cond_broadcast(&r->unpinned);
}

/* NULL: the session ended for another reason, or the mount is ending; no replacement follows. */
static struct replacement *begin(struct served_mount *s)
{
	struct mount_table *r = s->mount_table;
	struct replacement *p;

	LOCK_SCOPE(&r->lock);
	p = s->replacement;
	s->replacement = NULL;
	s->is_pooled = false;
	s->is_replaced = p;
	if (p)
		r->n_replacing++, r->n_replaced++;
	if (p && (s->is_ending || r->ends)) {
		say_done_locked(r, p, -EBUSY);
		r->n_replacing--;
		p = NULL;
	}
	return p;
}

/* The member cannot end before sb_registry_resumed, which may end it at once. */
static int enter_again(struct served_mount *s)
{
	struct hosted_member *o = s->hosted_member;
	struct mount_table *r = s->mount_table;

	sb_registry_reopened(o);
	listen_for_others(r, s);
	mutex_lock(&r->lock);
	s->is_replaced = false;
	mutex_unlock(&r->lock);
	enlist(r, s);
	served_mount_unpin(s);
	sb_registry_resumed(o);
	return 0;
}

static void lose(struct served_mount *s)
{
	if (!s->hosted_member) {
		mount_table_drop(s->mount_table, s);
		return;
	}
	sb_registry_lost(s->hosted_member, s->kept.locks);
}

/* For a member of a shared superblock, which holds its requests back. */
static int reopen_member(struct served_mount *s, char *err, size_t err_size)
{
	int e = saved_mount_reopen(&s->kept, NULL, &s->mount, &s->has_mount, err, err_size);

	if (e < 0)
		return e;
	resend_state_settle(&s->mount);
	enter_again(s);
	return 0;
}

/* Try again while descriptors or memory are short, as long as the record is complete. */
static int resume(struct served_mount *s, char *err, size_t err_size)
{
	const int64_t until = clock_ms() + TRY_MS;

	for (;;) {
		int e = s->hosted_member ? reopen_member(s, err, err_size)
					 : resume_alone(s->mount_table, s, err, err_size);

		/* The mount may have ended by now. */
		if (e == 0)
			return 0;
		if (!s->kept.is_kept || clock_ms() >= until) {
			saved_mount_forget_rebuild(&s->kept);
			return e;
		}
		if (!saved_mount_regain(&s->kept, &s->mount, &s->has_mount))
			return e;
		fd_cache_shrink();
		usleep(TRY_US);
	}
}

static int leave(struct served_mount *s, struct inode_rebuild *rebuild)
{
	struct mount_saved_tables left = MOUNT_SAVED_TABLES_NONE;
	int r;

	left.rebuild = rebuild;
	r = mount_leave(&s->mount, &left);
	s->has_mount = false;
	s->kept.rebuild = left.rebuild;
	saved_mount_keep_left(&s->kept, &left);
	return r;
}

/* The result of the step, or -errno; -ENOTCONN: the mount is lost. */
static int replace_mount(struct served_mount *s, struct session *session, struct replacement *p)
{
	struct mount_table *r = s->mount_table;
	struct mount_record *d = &s->kept.mount_record;
	_cleanup_(closep) int upper = fcntl(s->mount.tree.upper->rootfd, F_DUPFD_CLOEXEC, 3);
	/* Hold the image: freeing it takes time in proportion to its size, while requests wait. */
	struct image *image = image_ref(s->mount.tree.image);
	char err[PATH_MAX * 2] = "";
	int e, done = upper < 0 ? -errno : 0;

	if (done == 0 && session && s->mount.tree.locks && !session_has_resend(session))
		done = -EOPNOTSUPP;
	if (done == 0 && !p->step->keeps_upper)
		done = mount_freeze_check(&s->mount);

	if (done == 0 && p->step->prepare)
		done = p->step->prepare(p->step->arg, &s->mount, d);
	/* Nothing was changed: the mount goes on. */
	if (done < 0) {
		if (p->rebuild)
			inode_rebuild_cancel(&s->mount.tree);
		e = s->hosted_member ? enter_again(s) : enter_pool(r, s, session, err, sizeof(err));
		if (e < 0 && s->kept.is_kept) {
			leave(s, NULL);
			e = resume(s, err, sizeof(err));
		}
	} else {
		session_leave(session);
		done = leave(s, p->rebuild);
		done = done ?: p->step->take(p->step->arg, upper);
		e = resume(s, err, sizeof(err));
	}
	if (e < 0) {
		log_error("a mount is lost as it could not be opened anew: %s", err);
		lose(s);
	}
	p->image = image;
	return e < 0 ? -ENOTCONN : done;
}

static bool replace(struct served_mount *s, struct session *session)
{
	struct mount_table *r = s->mount_table;
	struct replacement *p = begin(s);
	int done;

	if (!p)
		return false;
	served_mount_delist(s);
	served_mount_leave_jobs(s);
	closep(&s->takeover_fd);
	done = replace_mount(s, session, p);
	LOCK_SCOPE(&r->lock);
	r->n_replacing--;
	say_done_locked(r, p, done);
	return true;
}

static int ask(struct served_mount *s, struct replacement *p)
{
	LOCK_SCOPE(&s->mount_table->lock);
	if (!s->kept.is_kept)
		return -EOPNOTSUPP;
	/* A member is in no pool; is_replaced says that another change has begun. */
	if (s->mount_table->ends || s->is_ending || s->replacement ||
	    !(s->hosted_member ? !s->is_replaced : s->is_pooled))
		return -EBUSY;
	s->replacement = p;
	return 0;
}

static bool takes_back(struct served_mount *s, struct replacement *p, int result)
{
	struct mount_table *r = s->mount_table;

	LOCK_SCOPE(&r->lock);
	/* The change has begun, or the mount has not ended after all. */
	if (s->replacement != p || (result == -EBUSY && !r->ends && !s->is_ending))
		return false;
	s->replacement = NULL;
	say_done_locked(r, p, result);
	return true;
}

static void take_back_now(struct served_mount *s, struct replacement *p, int result)
{
	LOCK_SCOPE(&s->mount_table->lock);
	s->replacement = NULL;
	say_done_locked(s->mount_table, p, result);
}

/* A request does not end: the mount goes on unchanged, unless it is ending. */
static void give_up(struct served_mount *s, struct replacement *p)
{
	if (takes_back(s, p, -EBUSY) || pool_resume(s->mount_table->pool, s->number) < 0)
		return;
	served_mount_enter_jobs(s);
	if (takes_back(s, p, -EAGAIN) && p->rebuild)
		inode_rebuild_cancel(&s->mount.tree);
}

/* s is pinned on entry; this function unpins it. */
static void replace_member(struct served_mount *s, struct replacement *p)
{
	struct hosted_member *o = s->hosted_member;
	int e = sb_registry_suspend(o, SERVED_MOUNT_END_WAIT_MS);

	if (e < 0) {
		take_back_now(s, p, e);
		if (p->rebuild)
			inode_rebuild_cancel(&s->mount.tree);
		served_mount_unpin(s);
		if (e == -EAGAIN)
			sb_registry_resumed(o);
		return;
	}
	served_mount_unpin(s);
	if (replace(s, NULL))
		return;
	sb_registry_reopened(o);
	sb_registry_resumed(o);
}

static void end_session(struct served_mount *s, struct replacement *p)
{
	served_mount_leave_jobs(s);
	if (pool_end(s->mount_table->pool, s->number, SERVED_MOUNT_END_WAIT_MS) < 0)
		give_up(s, p);
}

static int sync_upper(struct union_fs *t)
{
	if (t->is_volatile || syncfs(t->upper->rootfd) == 0)
		return 0;
	t->sync_error = -errno;
	return -errno;
}

static int await_done(struct mount_table *r, struct replacement *p)
{
	LOCK_SCOPE(&r->lock);
	while (!p->is_done)
		pthread_cond_wait(&r->unpinned, &r->lock);
	return p->result;
}

/* Do the work that grows with the number of files while requests are still answered. */
static int get_ready(struct served_mount *s, struct replacement *p)
{
	const struct mount_table_step *step = p->step;
	int r = step->begin ? step->begin(step->arg, &s->mount, &s->kept.mount_record) : 0;

	if (r == 0 && !step->keeps_upper)
		r = mount_freeze_prepare(&s->mount) ?: sync_upper(&s->mount.tree);
	/* Optional: without the rebuild requests wait longer. */
	if (r == 0)
		(void)inode_rebuild_begin(&s->mount.tree, &p->rebuild);
	return r;
}

int mount_table_replace(struct mount_table *r, uint64_t id, const struct mount_table_step *step)
{
	struct replacement p = { .step = step };
	struct served_mount *s = served_mount_pin_after(r, id, true);
	int e;

	if (!s)
		return -ENOENT;
	e = get_ready(s, &p) ?: ask(s, &p);
	if (e < 0 && p.rebuild)
		inode_rebuild_cancel(&s->mount.tree);
	if (e == 0 && s->hosted_member) {
		replace_member(s, &p);
	} else {
		if (e == 0)
			end_session(s, &p);
		served_mount_unpin(s);
	}
	e = e ?: await_done(r, &p);
	mount_left_over_free(p.rebuild, p.image, p.rebuild && !step->keeps_upper);
	return e;
}
