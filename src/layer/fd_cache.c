// SPDX-License-Identifier: Apache-2.0
/* One LRU list over all slots of the process. Invariants:
 * 1. a slot is in the list if and only if it has a descriptor and no pins;
 * 2. nopen counts the slots that have a descriptor;
 * 3. nheld is the sum of all shares; held descriptors do not count against the limit;
 * 4. descriptors are closed after the lock is dropped: close(2) may write. */
#include "veneer/layer/fd_cache.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/stats.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>

#define FD_CACHE_MIN	     64
#define FD_CACHE_LEAST	     4 /* where not even those are free */
#define FD_CACHE_MAX	     16384
#define FD_CACHE_EVICT_BATCH 16
#define FD_CACHE_SPARE	     32 /* for the moment: workers, connections */
#define SHARE_FACTOR	     8

static struct {
	mutex_t lock;
	GUARDED_BY(lock) struct list_link lru; /* least recently used first */
	GUARDED_BY(lock) size_t nopen, limit;
	GUARDED_BY(lock) size_t nheld, room; /* room: of all shares together */
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .lru = { &cache.lru, &cache.lru },
	    .limit = 512,
	    .room = 480 };

#define slot_of(l) container_of(l, struct fd_cache_slot, lru)

static void set_bound(size_t taken)
{
	size_t limit = 1024, free;
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
		limit = rl.rlim_cur;
	free = limit > taken ? limit - taken : 0;
	limit = free / 2; /* the rest: maps, unlinked files, workers */
	if (limit > FD_CACHE_MAX)
		limit = FD_CACHE_MAX;
	if (limit < FD_CACHE_MIN && free > FD_CACHE_MIN + FD_CACHE_SPARE)
		limit = FD_CACHE_MIN;
	else if (limit < FD_CACHE_MIN)
		limit = limit / 2 > FD_CACHE_LEAST ? limit / 2 : FD_CACHE_LEAST;
	LOCK_SCOPE(&cache.lock);
	cache.limit = limit;
	cache.room = free > limit + FD_CACHE_SPARE ? free - limit - FD_CACHE_SPARE : 0;
}

void fd_cache_init(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
	set_bound(0);
}

void fd_cache_bound(void)
{
	/* The lowest that is free: all below it are taken. */
	_cleanup_(closep) int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	size_t own = fd_cache_count(); /* of the cache itself, where other mounts have filled it */

	set_bound(fd < 0 || (size_t)fd < own ? 0 : (size_t)fd - own);
}

static int pin_locked(struct fd_cache_slot *s)
{
	if (!s->fd_plus_one)
		return -1;
	if (s->pins++ == 0)
		list_del(&s->lru);
	return s->fd_plus_one - 1;
}

int fd_cache_pin(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	stats_add(s->fd_plus_one ? STATS_FD_HITS : STATS_FD_MISSES, 1);
	return pin_locked(s);
}

int fd_cache_pin_again(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	return pin_locked(s);
}

/* Takes up to n unpinned descriptors out of the cache; the caller closes them. */
static size_t evict_locked(size_t keep, int *fds, size_t n) REQUIRES(cache.lock)
{
	size_t got = 0;

	while (got < n && cache.nopen > keep && !list_is_empty(&cache.lru)) {
		struct fd_cache_slot *s = slot_of(cache.lru.next);

		list_del(&s->lru);
		fds[got++] = s->fd_plus_one - 1;
		s->fd_plus_one = 0;
		cache.nopen--;
	}
	return got;
}

int fd_cache_fill(struct fd_cache_slot *s, int fd)
{
	int evicted[FD_CACHE_EVICT_BATCH];
	size_t n = 0;
	int r = fd;

	mutex_lock(&cache.lock);
	if (s->fd_plus_one) {
		if (s->pins++ == 0)
			list_del(&s->lru);
		r = s->fd_plus_one - 1;
	} else {
		s->fd_plus_one = fd + 1;
		s->pins = 1;
		s->is_writable = false;
		list_init(&s->lru);
		cache.nopen++;
		n = evict_locked(cache.limit + cache.nheld, evicted, FD_CACHE_EVICT_BATCH);
	}
	mutex_unlock(&cache.lock);

	if (r != fd)
		close(fd);
	for (size_t i = 0; i < n; i++)
		close(evicted[i]);
	return r;
}

void fd_cache_unpin(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	if (--s->pins == 0)
		list_add_tail(&cache.lru, &s->lru);
}

void fd_cache_note_writable(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	s->is_writable = true;
}

bool fd_cache_is_writable(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	return s->is_writable;
}

static int take_locked(struct fd_cache_slot *s) REQUIRES(cache.lock)
{
	int fd = s->fd_plus_one - 1;

	if (fd >= 0) {
		if (s->pins == 0)
			list_del(&s->lru);
		cache.nopen--;
	}
	s->fd_plus_one = 0;
	s->pins = 0;
	s->is_writable = false;
	return fd;
}

int fd_cache_steal(struct fd_cache_slot *s)
{
	LOCK_SCOPE(&cache.lock);
	return take_locked(s);
}

bool fd_cache_drop_idle(struct fd_cache_slot *s)
{
	_cleanup_(closep) int old = -1;

	LOCK_SCOPE(&cache.lock);
	if (s->pins)
		return false;
	old = take_locked(s);
	return true;
}

void fd_cache_drop(struct fd_cache_slot *s)
{
	int old = fd_cache_steal(s);

	if (old >= 0)
		close(old);
}

int fd_cache_hold(struct fd_cache_share *m)
{
	LOCK_SCOPE(&cache.lock);
	if (cache.nheld >= cache.room || m->n >= SHARE_FACTOR * (cache.room - cache.nheld))
		return -ENFILE;
	m->n++;
	cache.nheld++;
	return 0;
}

void fd_cache_unhold(struct fd_cache_share *m)
{
	LOCK_SCOPE(&cache.lock);
	m->n--;
	cache.nheld--;
}

size_t fd_cache_held(const struct fd_cache_share *m)
{
	LOCK_SCOPE(&cache.lock);
	return m->n;
}

size_t fd_cache_count(void)
{
	LOCK_SCOPE(&cache.lock);
	return cache.nopen;
}

void fd_cache_shrink(void)
{
	int evicted[FD_CACHE_EVICT_BATCH];
	size_t n;

	do {
		mutex_lock(&cache.lock);
		n = evict_locked(0, evicted, FD_CACHE_EVICT_BATCH);
		mutex_unlock(&cache.lock);
		for (size_t i = 0; i < n; i++)
			close(evicted[i]);
	} while (n);
}
