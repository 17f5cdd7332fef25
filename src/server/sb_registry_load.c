// SPDX-License-Identifier: Apache-2.0
/* Shared superblocks of a dead server. The first thread that needs one, for a member or for itself,
 * opens it; the others wait. */
#include "sb_registry-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <stdio.h>
#include <string.h>

static struct hosted_sb *find_locked(struct sb_registry *cs, uint64_t key) REQUIRES(cs->lock)
{
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next)
		if (common_of(l)->key == key)
			return common_of(l);
	return NULL;
}

/* 0: the superblock is there, held; 1: the caller opens it. */
static int claim(struct sb_registry *cs, uint64_t key, struct hosted_sb **ret)
{
	struct hosted_sb *c;

	LOCK_SCOPE(&cs->lock);
	while ((c = find_locked(cs, key)) && c->state == FORMING)
		pthread_cond_wait(&cs->changed, &cs->lock);
	if (c && c->state == OVER)
		return -ENOTCONN;
	if (c) {
		c->holds++;
		*ret = c;
		return 0;
	}
	c = sb_registry_sb_new(cs);
	if (!c)
		return -ENOMEM;
	c->key = key;
	c->is_left = true;
	list_add_tail(&cs->all, &c->link);
	*ret = c;
	return 1;
}

/* ---- from the supervisor state ---- */

struct query {
	struct hosted_sb *common;
	uint32_t place;
	int fd; /* -1: not found */
	int r;
};

static void look_for(int fd, uint32_t place, void *arg)
{
	struct query *f = arg;
	struct mount_record d;

	if (f->fd >= 0 || mount_record_read(fd, &d) < 0)
		return;
	if (mount_record_is_common(&d) && d.key == f->common->key) {
		f->fd = fd;
		f->place = place;
	}
	mount_record_forget(&d);
}

static int find(struct hosted_sb *c)
{
	struct query f = { .common = c, .fd = -1 };
	int r;

	supervisor_state_each(c->cs->supervisor_state, look_for, &f);
	r = f.fd < 0 ? -ENOENT : mount_record_read(f.fd, &c->kept.mount_record);
	if (r == 0) {
		c->kept.place = f.place;
		c->kept.is_kept = true;
	}
	return r;
}

static void expect_one(int fd, uint32_t place, void *arg)
{
	struct query *f = arg;
	struct mount_record d;

	(void)place;
	if (f->r < 0 || mount_record_read(fd, &d) < 0)
		return;
	if (d.group == f->common->key && !mount_record_is_common(&d))
		f->r = sb_member_expect(f->common->shared_sb, (uint32_t)d.key);
	mount_record_forget(&d);
}

/* ---- opening ---- */

static int open_again(struct hosted_sb *c, struct session **ret, char *err, size_t err_size)
{
	struct query members = { .common = c };
	struct mount_record *d = &c->kept.mount_record;
	int r;

	c->dev_major = d->dev_major;
	c->dev_minor = d->dev_minor;
	r = saved_mount_reopen(&c->kept, NULL, &c->mount, &c->has_mount, err, err_size);
	if (r < 0)
		return r;
	r = shared_sb_new(&c->mount, steal_fd(&d->estale_table_fd), sb_registry_note_unused,
			  &c->shared_sb);
	if (r == 0) {
		shared_sb_note_device(c->shared_sb, c->dev_major, c->dev_minor);
		supervisor_state_each(c->cs->supervisor_state, expect_one, &members);
		r = members.r;
	}
	if (r < 0) {
		snprintf(err, err_size, "%s: cannot have mounts in common: %s",
			 c->mount.opts.mountpoint, strerror(-r));
		return r;
	}
	return shared_sb_resume(
		c->shared_sb, &(struct session_saved){ d->fuse_fd, (enum io_mode)d->io, &d->init },
		ret, err, err_size);
}

int sb_registry_resume(struct sb_registry *cs, uint64_t key, struct hosted_sb **ret, char *err,
		       size_t err_size)
{
	struct session *session;
	struct activity *before;
	struct hosted_sb *c;
	int r = claim(cs, key, &c);

	if (r < 0)
		snprintf(err, err_size, "its shared superblock is gone");
	if (r == 1) {
		r = find(c);
		snprintf(err, err_size, "its shared superblock is gone");
		before = activity_begin(
			r < 0 ? NULL
			      : supervisor_state_activity(cs->supervisor_state, c->kept.place));
		if (r == 0)
			r = open_again(c, &session, err, err_size);
		activity_end(before);
		if (r == 0)
			r = sb_registry_sb_serve(c, session, err, err_size);
		if (r < 0) {
			/* No other thread may try again: this attempt has closed its
			 * descriptors. */
			saved_mount_drop(&c->kept);
			sb_registry_leave(c);
		}
	}
	if (r == 0)
		*ret = c;
	return r;
}

void sb_registry_lose(struct hosted_sb *c, uint64_t key)
{
	sb_member_lose(c->shared_sb, (uint32_t)key);
}

static bool is_open(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	return c->state == OPEN;
}

void sb_registry_lose_rest(struct sb_registry *cs)
{
	struct hosted_sb *c = NULL;

	while ((c = sb_registry_hold_next(cs, c)))
		if (is_open(c))
			sb_member_lose_rest(c->shared_sb);
	LOCK_SCOPE(&cs->lock);
	cs->is_hurried = true;
	pthread_cond_broadcast(&cs->changed);
}

struct image *sb_registry_image(const struct hosted_sb *c)
{
	return c->mount.tree.image;
}
