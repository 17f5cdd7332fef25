// SPDX-License-Identifier: Apache-2.0
/* Serving a shared superblock: from its founding or its resumption to the end of its session. */
#include "sb_registry-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define END_WAIT_MS 5000u

static void hold(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	c->holds++;
}

static void set_state(struct hosted_sb *c, enum state state)
{
	LOCK_SCOPE(&c->cs->lock);
	c->state = state;
	pthread_cond_broadcast(&c->cs->changed);
}

/* The pool calls this on a thread of its own. A member that is about to be bound, or that a thread
 * is looking for, leaves later. */
static void common_ended(struct session *session, void *arg)
{
	struct hosted_sb *c = arg;

	set_state(c, OVER);
	/* Withdraw the record while the superblock can still be found. A thread that resumed it
	 * from the supervisor state would use its descriptors, which are closed soon. */
	saved_mount_drop(&c->kept);
	mutex_lock(&c->cs->lock);
	while (!list_is_empty(&c->members)) {
		mutex_unlock(&c->cs->lock);
		sb_registry_let_leave(c);
		mutex_lock(&c->cs->lock);
		if (!list_is_empty(&c->members))
			sb_registry_wait_locked(c->cs, SB_REGISTRY_TICK_MS);
	}
	mutex_unlock(&c->cs->lock);
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

/* Save the superblock. If the kernel cannot resend requests that a dead server had read, all mounts
 * end with the server. */
static int keep_common(struct hosted_sb *c, int fuse_fd, const struct session *session)
{
	struct mount_record *d = &c->kept.mount_record;
	const void *init;
	size_t len;

	d->dev_major = c->dev_major;
	d->dev_minor = c->dev_minor;
	init = session_init(session, &len);
	if (c->cs->supervisor_state && session_has_resend(session)) {
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

static void *end_one(void *arg)
{
	struct hosted_sb *c = arg;
	struct sb_registry *cs = c->cs;

	if (pool_end(cs->pool, c->number, END_WAIT_MS) < 0)
		log_error("%s: a request does not end", c->mount.opts.mountpoint);
	sb_registry_sb_release(c);
	sb_registry_end_thread(cs);
	return NULL;
}

/* Find an open superblock, hold it, and mark it as over. */
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
		sb_registry_run(cs, end_one, c);
}
