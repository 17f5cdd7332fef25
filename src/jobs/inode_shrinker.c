// SPDX-License-Identifier: Apache-2.0
/* A mount that has grown by some number of inodes wakes the thread (tree->on_grown). If memory is
 * scarce, and inodes have a part in that, the thread asks the kernel to forget half of the inodes
 * of the largest mount. They go in the order of their ids, from the end of the last round. The
 * kernel keeps inodes in use: open files, working directories, mount points, directories with
 * cached entries. It sends a FORGET for each of the others.
 *
 * No call that could wait is made with the lock held. */
#include "veneer/jobs/inode_shrinker.h"

#include "mount_registry.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/kernel_evict.h"
#include "veneer/sys/mem_usage.h"
#include "veneer/sys/thread.h"

#include <malloc.h>
#include <semaphore.h>
#include <stdlib.h>

#define HIGH_PERCENT 75u /* of memory, without cache that can be reclaimed */
#define SHARE	     16u /* inodes matter if they take one part in so many of memory */
#define INODE_BYTES  768u /* with its name and its slot */
#define BATCH	     KERNEL_EVICT_NODES_MAX /* of one child */
#define STACK_SIZE   (256u << 10)

struct member {
	struct mount_registry_member registered;
	int fuse_fd;
	struct union_fs *tree;
	uint32_t from; /* node id; the thread's */
};

static struct mount_registry mounts = MOUNT_REGISTRY_INIT(mounts);
GUARDED_BY(mounts.lock) static bool has_thread;

static struct member *member_of(struct mount_registry_member *m)
{
	return m ? container_of(m, struct member, registered) : NULL;
}

static struct member *next_locked(struct member *m) REQUIRES(mounts.lock)
{
	return member_of(mount_registry_next(&mounts, m ? &m->registered : NULL));
}

/* Posted by callers with locks of their own held. */
static sem_t wakeup;
static _Atomic bool is_woken;

static void wake_thread(void)
{
	if (!atomic_exchange(&is_woken, true))
		sem_post(&wakeup);
}

static uint64_t bytes_of_all(void)
{
	uint64_t sum = 0;

	LOCK_SCOPE(&mounts.lock);
	for (struct member *m = NULL; (m = next_locked(m));)
		sum += (uint64_t)inode_count(m->tree) * INODE_BYTES;
	return sum;
}

static bool is_scarce(void)
{
	struct mem_usage m;

	return mem_usage_read(&m) == 0 && mem_usage_percent(&m, 0) >= HIGH_PERCENT &&
	       bytes_of_all() >= m.limit / SHARE;
}

/* Pin the mount with the most inodes; NULL: no mount has many. */
static struct member *pin_largest(size_t *ret_count)
{
	struct member *most = NULL;

	*ret_count = UNION_FS_GROWN_STEP - 1;
	LOCK_SCOPE(&mounts.lock);
	for (struct member *m = NULL; (m = next_locked(m));) {
		const size_t n = inode_count(m->tree);

		if (n <= *ret_count)
			continue;
		*ret_count = n;
		most = m;
	}
	if (most)
		most->registered.is_pinned = true;
	return most;
}

static void unpin(struct member *m)
{
	LOCK_SCOPE(&mounts.lock);
	mount_registry_unpin(&mounts, &m->registered);
}

/* False: this kernel cannot prune. */
static bool prune(struct member *m, size_t wanted)
{
	static uint64_t nodes[BATCH]; /* there is one thread */
	unsigned ends = 0;

	for (size_t sum = 0, n; sum < wanted && ends < 2; sum += n) {
		int r;

		n = inode_list_idle(m->tree, &m->from, nodes, BATCH);
		ends += m->from == 0;
		r = n ? kernel_evict_nodes(m->fuse_fd, nodes, n) : 0;
		if (r < 0)
			return r != -EINVAL;
	}
	return true;
}

/* False: do not try again. */
static bool one_round(void)
{
	struct member *m;
	size_t count;
	bool can;

	if (!is_scarce())
		return true;
	/* The allocator may still hold memory that the last round freed. */
	malloc_trim(0);
	if (!is_scarce() || !(m = pin_largest(&count)))
		return true;
	can = prune(m, count / 2);
	unpin(m);
	log_debug("memory is scarce: asked the kernel to forget %zu of %zu inodes", count / 2,
		  count);
	if (!can)
		log_info("memory is scarce, and this kernel cannot forget names on request; Linux "
			 "6.18 can");
	return can;
}

static void *run(void *arg)
{
	bool goes_on = true;

	(void)arg;
	for (;;) {
		while (sem_wait(&wakeup) < 0)
			;
		atomic_store(&is_woken, false);
		goes_on = goes_on && one_round();
	}
	return NULL;
}

static int start_thread_locked(void) REQUIRES(mounts.lock)
{
	int r;

	sem_init(&wakeup, 0, 0);
	r = thread_start_without_signals(run, NULL, STACK_SIZE);
	has_thread = r == 0;
	return r;
}

int inode_shrinker_enter(struct union_fs *t, int fuse_fd, uint32_t *ret_number)
{
	struct member *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->fuse_fd = fuse_fd;
	m->tree = t;
	LOCK_SCOPE(&mounts.lock);
	r = has_thread ? 0 : start_thread_locked();
	if (r < 0) {
		free(m);
		return r;
	}
	mount_registry_enter(&mounts, &m->registered);
	*ret_number = m->registered.number;
	t->on_grown = wake_thread;
	/* A mount of a dead server may have many. */
	wake_thread();
	return 0;
}

void inode_shrinker_leave(uint32_t number)
{
	LOCK_SCOPE(&mounts.lock);
	free(member_of(mount_registry_leave(&mounts, number)));
}
