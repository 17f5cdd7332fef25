// SPDX-License-Identifier: Apache-2.0
/* States of a shared superblock:
 *
 * FORMING   its founder is mounting it; other mounts that belong there wait
 * OPEN      served
 * OVER      its file system is gone, or never existed; no search finds it any more, and it is
 *           freed when the last member has left
 *
 * Lock order: the lock of struct shared_sb before this one. */
#include "sb_registry-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* after this time the founder counts as stuck, and others do not wait for it */
#define FORMING_MS 2000
#define STACK_SIZE (256u << 10)

void sb_registry_wait_locked(struct sb_registry *cs, unsigned ms)
{
	clock_wait(&cs->changed, &cs->lock, clock_ms() + ms);
}

bool sb_registry_is_built(void)
{
	return true;
}

int sb_registry_new(struct pool *pool, struct supervisor_state *supervisor_state,
		    const struct sb_registry_owner_calls *calls, struct sb_registry **ret)
{
	struct sb_registry *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->pool = pool;
	cs->supervisor_state = supervisor_state;
	cs->calls = calls;
	mutex_init(&cs->lock);
	pthread_cond_init(&cs->changed, NULL);
	list_init(&cs->all);
	*ret = cs;
	return 0;
}

void sb_registry_free(struct sb_registry *cs)
{
	if (!cs)
		return;
	mutex_lock(&cs->lock);
	cs->is_stopping = true;
	pthread_cond_broadcast(&cs->changed);
	while (cs->threads || !list_is_empty(&cs->all))
		pthread_cond_wait(&cs->changed, &cs->lock);
	mutex_unlock(&cs->lock);
	pthread_cond_destroy(&cs->changed);
	mutex_destroy(&cs->lock);
	free(cs);
}

static void begin_thread(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->threads++;
}

void sb_registry_end_thread(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->threads--;
	pthread_cond_broadcast(&cs->changed);
}

int sb_registry_start_thread(struct sb_registry *cs, void *(*fn)(void *arg), void *arg)
{
	int r;

	begin_thread(cs);
	r = thread_start(fn, arg, STACK_SIZE);
	if (r < 0)
		sb_registry_end_thread(cs);
	return r;
}

void sb_registry_run(struct sb_registry *cs, void *(*fn)(void *arg), void *arg)
{
	if (sb_registry_start_thread(cs, fn, arg) == 0)
		return;
	begin_thread(cs);
	fn(arg);
}

/* ---- one shared superblock ---- */

static bool is_last_release(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	if (--c->holds > 0)
		return false;
	list_del(&c->link);
	/* Count this thread, for which sb_registry_end_all waits. */
	c->cs->threads++;
	return true;
}

/* Give up a hold; the last one frees the superblock. The pool holds a superblock until it is
 * over. */
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
		cs->calls->ended(last->owner);
	free(last);
	sb_registry_end_thread(cs);
}

void sb_registry_note_unused(void *owner)
{
	struct hosted_member *o = owner;

	LOCK_SCOPE(&o->common->cs->lock);
	o->is_unused = true;
	pthread_cond_broadcast(&o->common->cs->changed);
}

/* Layers of the mount's own arguments. Snapshots are not: they are found through the layer above
 * them. */
static bool is_named(const struct layer *l)
{
	return !l->is_snapshot && !l->is_rest;
}

/* Does the mount have snapshots of its own above the layers that it shares? */
static bool has_snapshots(const struct mount *m)
{
	struct layer *const *layers;

	return image_layers(m->tree.image, &layers) > 0 && !is_named(layers[0]);
}

/* Duplicate the layers of the mount, without its own snapshots. */
static int open_dirs(const struct mount *m, pid_t opener, struct mount_dirs *ret)
{
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers), n_named = 0;
	int r = 0;

	mount_dirs_init(ret);
	ret->opener = opener;
	for (size_t i = 0; r == 0 && i < n; i++) {
		int fd;

		if (!is_named(layers[i]))
			continue;
		n_named++;
		fd = fcntl(layers[i]->rootfd, F_DUPFD_CLOEXEC, 3);
		r = fd < 0 ? -errno : mount_dirs_add_lower(ret, fd);
	}
	return r == 0 && n_named != m->opts.n_lower ? -EINVAL : r;
}

/* For the next server: save the request of one member, without its own directories. */
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
	/* A layer has just changed, or cannot be shared between mounts. */
	if (r == 0 && !has_snapshots(m) && c->mount.tree.image != m->tree.image)
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
	c->kept.work = WORKDIR_NONE;
	mount_record_init(&c->kept.mount_record);
	c->state = FORMING;
	c->holds = 1;
	list_init(&c->link);
	list_init(&c->members);
	return c;
}

/* The founder takes too long: others found a superblock of their own. This one may still open,
 * beside theirs. */
static bool is_stuck(const struct hosted_sb *c)
{
	return c->state == FORMING && clock_ms() - c->since_ms >= FORMING_MS;
}

/* m must have the options of the superblock and its image. */
static struct hosted_sb *find_locked(struct sb_registry *cs, const struct mount *m)
	REQUIRES(cs->lock)
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

/* Find an open superblock and hold it; -EAGAIN: there is none. */
static int seek_open(struct sb_registry *cs, const struct mount *m, struct hosted_sb **ret,
		     int *ret_fd)
{
	struct hosted_sb *c;

	LOCK_SCOPE(&cs->lock);
	while ((c = find_locked(cs, m)) && c->state == FORMING)
		sb_registry_wait_locked(cs, SB_REGISTRY_TICK_MS);
	if (!c)
		return -EAGAIN;
	*ret_fd = fcntl(c->kept.mount_record.fuse_fd, F_DUPFD_CLOEXEC, 3);
	if (*ret_fd < 0)
		return -errno;
	c->holds++;
	*ret = c;
	return 0;
}

/* False: another thread has published one first. */
static bool publish(struct sb_registry *cs, struct hosted_sb *c)
{
	LOCK_SCOPE(&cs->lock);
	c->since_ms = clock_ms();
	if (find_locked(cs, &c->mount))
		c->state = OVER;
	list_add_tail(&cs->all, &c->link);
	return c->state == FORMING;
}

/* Open a common mount, and publish it or find another like it. The image of a mount with snapshots
 * is not the superblock's, so the search uses the opened one. -EAGAIN: the one that was found has
 * gone. */
static int open_or_seek(struct sb_registry *cs, const struct mount *m,
			const struct mount_record *asked, pid_t opener, struct hosted_sb **ret,
			int *ret_fd)
{
	struct hosted_sb *c = sb_registry_sb_new(cs);
	int r = c ? open_common_mount(c, m, asked, opener) : -ENOMEM;

	if (r == 0 && publish(cs, c)) {
		*ret = c;
		*ret_fd = -1;
		return 0;
	}
	if (r == 0)
		r = seek_open(cs, &c->mount, ret, ret_fd);
	if (c)
		sb_registry_sb_release(c);
	return r;
}

int sb_registry_seek(struct sb_registry *cs, struct mount *m, const struct mount_record *asked,
		     pid_t opener, struct hosted_sb **ret, int *ret_fd)
{
	int r = -EAGAIN;

	if (!m->tree.upper || m->opts.share != SHARE_PAGES || m->opts.io != IO_CACHED)
		return -EOPNOTSUPP;
	while (r == -EAGAIN) {
		if (!has_snapshots(m))
			r = seek_open(cs, m, ret, ret_fd);
		if (r == -EAGAIN)
			r = open_or_seek(cs, m, asked, opener, ret, ret_fd);
	}
	return r;
}

void sb_registry_leave(struct hosted_sb *c)
{
	mutex_lock(&c->cs->lock);
	if (c->state == FORMING)
		c->state = OVER;
	pthread_cond_broadcast(&c->cs->changed);
	mutex_unlock(&c->cs->lock);
	sb_registry_sb_release(c);
}

struct hosted_sb *sb_registry_hold_next(struct sb_registry *cs, struct hosted_sb *last)
{
	struct hosted_sb *next = NULL;
	struct list_link *l;

	mutex_lock(&cs->lock);
	l = last ? last->link.next : cs->all.next;
	if (l != &cs->all) {
		next = common_of(l);
		next->holds++;
	}
	mutex_unlock(&cs->lock);
	if (last)
		sb_registry_sb_release(last);
	return next;
}
