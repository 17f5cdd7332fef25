// SPDX-License-Identifier: Apache-2.0
#include "veneer/fuse/rollback_notify.h"

#include "kernel_invalidate.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"
#include "veneer/mount/mount_rollback.h"

#include <stdlib.h>
#include <string.h>

/* A name that was looked up since the mount went back. */
struct looked_up {
	struct hlink link;
	uint64_t parent;
	char name[];
};

static mutex_t looked_up_lock = PTHREAD_MUTEX_INITIALIZER;

static void put(void *d, uint64_t node, const char *name)
{
	kernel_invalidate_put(d, node, name);
}

static struct kernel_invalidate *start(struct mount *m, int fuse_fd, int *ret)
{
	struct kernel_invalidate *d = kernel_invalidate_new();

	*ret = d ? 0 : -ENOMEM;
	if (!d)
		return NULL;
	mount_rollback_each_name(m, put, d);
	*ret = kernel_invalidate_start(d, fuse_fd);
	return d;
}

int rollback_notify_before(struct mount *m, int fuse_fd, struct kernel_invalidate **ret)
{
	int r;

	*ret = start(m, fuse_fd, &r);
	return r;
}

int rollback_notify_await(struct kernel_invalidate *d, int wait_ms)
{
	return kernel_invalidate_wait(d, wait_ms);
}

void rollback_notify_free(struct kernel_invalidate *d)
{
	kernel_invalidate_free(d);
}

struct kernel_invalidate *rollback_notify_begin(struct mount *m, int fuse_fd)
{
	int r;

	if (!mount_rollback_is_unsaid(m))
		return NULL;
	m->checks_renames = true;
	return start(m, fuse_fd, &r);
}

static struct looked_up *find_locked(const struct mount *m, uint64_t parent, const char *name,
				     uint64_t hash) REQUIRES(looked_up_lock)
{
	for (struct hlink *l = htab_first(&m->looked_up, hash); l; l = htab_next(l)) {
		struct looked_up *e = container_of(l, struct looked_up, link);

		if (e->parent == parent && !strcmp(e->name, name))
			return e;
	}
	return NULL;
}

void rollback_notify_looked_up(struct mount *m, uint64_t parent, const char *name)
{
	const size_t len = strlen(name) + 1;
	struct looked_up *e;
	uint64_t hash;

	if (!m->checks_renames)
		return;
	hash = hash_key(name, len - 1, parent);
	LOCK_SCOPE(&looked_up_lock);
	if (!m->checks_renames || find_locked(m, parent, name, hash))
		return;
	e = malloc(sizeof(*e) + len);
	if (!e)
		return;
	e->parent = parent;
	memcpy(e->name, name, len);
	if (htab_insert(&m->looked_up, &e->link, hash) < 0)
		free(e);
}

bool rollback_notify_is_known(struct mount *m, uint64_t parent, const char *name)
{
	if (!m->checks_renames)
		return true;
	LOCK_SCOPE(&looked_up_lock);
	return !m->checks_renames ||
	       find_locked(m, parent, name, hash_key(name, strlen(name), parent));
}

static void free_looked_up(struct hlink *e, void *arg)
{
	(void)arg;
	free(container_of(e, struct looked_up, link));
}

void rollback_notify_stop(struct mount *m)
{
	LOCK_SCOPE(&looked_up_lock);
	m->checks_renames = false;
	htab_drain(&m->looked_up, free_looked_up, NULL);
	htab_release(&m->looked_up);
}

static int send_dirs(struct mount *m, int fuse_fd, int wait_ms)
{
	struct kernel_invalidate *d = kernel_invalidate_new();
	int r;

	if (!d)
		return -ENOMEM;
	if (mount_rollback_each_dir(m, put, d) < 0)
		kernel_invalidate_put_failed(d);
	r = kernel_invalidate_start(d, fuse_fd);
	r = r ?: kernel_invalidate_wait(d, wait_ms);
	kernel_invalidate_free(d);
	return r;
}

int rollback_notify_end(struct kernel_invalidate *d, struct mount *m, int fuse_fd, int wait_ms)
{
	int r;

	if (!mount_rollback_is_unsaid(m))
		return 0;
	r = send_dirs(m, fuse_fd, wait_ms);
	r = r ?: d ? kernel_invalidate_wait(d, wait_ms) : -ENOMEM;
	/* Otherwise a name may still lead to the file of before. */
	if (r == 0) {
		mount_rollback_end(m);
		rollback_notify_stop(m);
	}
	kernel_invalidate_free(d);
	return r;
}
