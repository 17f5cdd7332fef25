// SPDX-License-Identifier: Apache-2.0
/* A mount tells that it has grown by so many inodes (tree->on_grown); if memory is scarce by then,
 * and inodes have a part in that, the mount with the most of them gives half of them back, in the
 * order of their ids, beginning where the last round ended. The kernel leaves alone what is in use:
 * open files, working directories, mount points, directories with something below them that it
 * remembers. What it forgets comes back as FORGETs, which are answered like any other.
 *
 * The lock is held over no call that could wait. While the thread has to do with a member (`busy`),
 * a thread that takes that out waits. */
#include "veneer/jobs/inode_shrinker.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/sys/kernel_evict.h"
#include "veneer/sys/mem_usage.h"
#include "veneer/sys/thread.h"

#include <malloc.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define HIGH_PERCENT 75u /* of memory, without cache that is to be had for the asking */
#define SHARE                                                                                     \
	16u /* ... and with inodes that take less than one part in so many it is not ours to mend \
	     */
#define INODE_BYTES 768u /* with its name and its slot */
#define BATCH	    KERNEL_EVICT_NODES_MAX /* of one child */
#define STACK_SIZE  (256u << 10)

struct member {
	uint32_t number;
	int fuse_fd;
	struct union_fs *tree;
	uint32_t from; /* node id */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* guarded by lock */
	bool has_thread;
	struct member *members;
	size_t n, max;
	uint32_t last_number, busy;
} shrinker = { .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER };

/* Rung with locks of others held. */
static sem_t bell;
static _Atomic bool is_rung;

static void ring(void)
{
	if (!atomic_exchange(&is_rung, true))
		sem_post(&bell);
}

static uint64_t bytes_of_all(void)
{
	uint64_t sum = 0;

	LOCK_SCOPE(&shrinker.lock);
	for (size_t k = 0; k < shrinker.n; k++)
		sum += (uint64_t)inode_count(shrinker.members[k].tree) * INODE_BYTES;
	return sum;
}

static bool is_scarce(void)
{
	struct mem_usage m;

	return mem_usage_read(&m) == 0 && mem_usage_percent(&m, 0) >= HIGH_PERCENT &&
	       bytes_of_all() >= m.limit / SHARE;
}

/* Choose the mount with the most inodes; false: none has many. */
static bool begin_with_largest(struct member *ret, size_t *ret_count)
{
	struct member *most = NULL;
	size_t max = UNION_FS_GROWN_STEP - 1;

	LOCK_SCOPE(&shrinker.lock);
	for (size_t k = 0; k < shrinker.n; k++) {
		const size_t n = inode_count(shrinker.members[k].tree);

		if (n <= max)
			continue;
		max = n;
		most = &shrinker.members[k];
	}
	if (!most)
		return false;
	*ret = *most;
	*ret_count = max;
	shrinker.busy = most->number;
	return true;
}

static void end_with(const struct member *m)
{
	LOCK_SCOPE(&shrinker.lock);
	for (size_t k = 0; k < shrinker.n; k++)
		if (shrinker.members[k].number == m->number)
			shrinker.members[k].from = m->from;
	shrinker.busy = 0;
	pthread_cond_broadcast(&shrinker.idle);
}

/* False: this kernel does not do that. */
static bool give_back(struct member *m, size_t wanted)
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

/* False: it is not to be tried again. */
static bool one_round(void)
{
	struct member m;
	size_t count;
	bool can;

	if (!is_scarce())
		return true;
	/* Memory given back the last time may still be the allocator's. */
	malloc_trim(0);
	if (!is_scarce() || !begin_with_largest(&m, &count))
		return true;
	can = give_back(&m, count / 2);
	end_with(&m);
	log_debug("memory is scarce: asked for %zu of %zu inodes", count / 2, count);
	if (!can)
		log_info("memory is scarce, and this kernel cannot be asked to forget names; Linux "
			 "6.18 can");
	return can;
}

static void *run(void *arg)
{
	bool goes_on = true;

	(void)arg;
	for (;;) {
		while (sem_wait(&bell) < 0)
			;
		atomic_store(&is_rung, false);
		goes_on = goes_on && one_round();
	}
	return NULL;
}

static int start_thread_locked(void)
{
	int r;

	sem_init(&bell, 0, 0);
	r = thread_start_without_signals(run, NULL, STACK_SIZE);
	shrinker.has_thread = r == 0;
	return r;
}

static int enter_locked(const struct member *m)
{
	int r = array_reserve(&shrinker.members, &shrinker.max, shrinker.n + 1);

	if (r == 0)
		shrinker.members[shrinker.n++] = *m;
	return r;
}

int inode_shrinker_enter(struct union_fs *t, int fuse_fd, uint32_t *ret_number)
{
	int r = 0;

	LOCK_SCOPE(&shrinker.lock);
	if (!shrinker.has_thread)
		r = start_thread_locked();
	if (r == 0) {
		const struct member m = { .number = shrinker.last_number + 1,
					  .fuse_fd = fuse_fd,
					  .tree = t };

		r = enter_locked(&m);
	}
	if (r < 0)
		return r;
	*ret_number = ++shrinker.last_number;
	t->on_grown = ring;
	/* A dead server may have left many. */
	ring();
	return 0;
}

void inode_shrinker_leave(uint32_t number)
{
	if (!number)
		return;
	LOCK_SCOPE(&shrinker.lock);
	for (size_t k = 0; k < shrinker.n; k++) {
		if (shrinker.members[k].number != number)
			continue;
		shrinker.n--;
		memmove(&shrinker.members[k], &shrinker.members[k + 1],
			(shrinker.n - k) * sizeof(*shrinker.members));
		break;
	}
	while (shrinker.busy == number)
		pthread_cond_wait(&shrinker.idle, &shrinker.lock);
}
