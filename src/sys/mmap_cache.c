// SPDX-License-Identifier: Apache-2.0
/* States of a window: made (reserved, mapped, known to its maker) -> listed (in the table and in
 * the policy queues; anyone finds it) -> retired (known only to the threads that pinned it) ->
 * destroyed. A page of it is absent, filling or resident.
 *
 * Invariants:
 * 1. cache.bytes is the length of all mappings, including those about to be made and not yet
 *    unmapped. It exceeds the budget only after mmap_cache_set_budget, until the last pin is
 *    dropped.
 * 2. A listed window is in the table and in the queues; a retired one in neither; one without pins
 *    is listed.
 * 3. A page is filling while exactly one thread in mmap_cache_fill reads it in. That thread waits
 *    for no other before it is done, so that waits end.
 * 4. mmap, munmap, madvise and every read happen without the lock. */
#include "veneer/sys/mmap_cache.h"

#include "veneer/base/cache_policy.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/hash.h"
#include "veneer/base/htab.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/sys/pressure.h"
#include "veneer/sys/ring.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>

#define BUDGET_MAX	 ((size_t)1 << 30)
#define BUDGET_SHARE	 8
#define MAPS_DEFAULT	 65530ul /* vm.max_map_count where it cannot be read */
#define MAPS_SHARE	 4
#define RESERVE_TRIES	 64
#define PRESSURE_CHECK_S 1
#define FILL_AREAS	 64
#define PAGES		 CHUNK_BLKS
#define WORDS		 (PAGES / 64)

struct key {
	dev_t dev;
	ino_t ino;
	uint64_t index;
};

/* One bit per page. */
struct pages {
	uint64_t word[WORDS];
};

static struct {
	mutex_t lock;
	GUARDED_BY(lock) struct htab table;
	GUARDED_BY(lock) struct cache_policy policy;
	GUARDED_BY(lock) size_t bytes, count, budget, count_max;
	GUARDED_BY(lock) time_t next_check;
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct mmap_cache {
	struct key key; /* constant, as are the next three */
	const void *owner;
	char *addr;
	size_t len;

	GUARDED_BY(cache.lock) struct hlink hash;
	GUARDED_BY(cache.lock) struct cache_policy_entry policy;
	GUARDED_BY(cache.lock) unsigned pins;
	GUARDED_BY(cache.lock) bool is_listed;
	GUARDED_BY(cache.lock) struct pages resident, filling;
	pthread_cond_t filled; /* a page has stopped filling */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool is_refused; /* the kernel cannot read pages in without raising signals */

static void retire_locked(struct mmap_cache *w, bool is_evicted) REQUIRES(cache.lock)
{
	htab_remove(&cache.table, &w->hash);
	cache_policy_remove(&cache.policy, &w->policy, is_evicted);
	w->is_listed = false;
	INVARIANTS(mmap_cache_check_invariants());
}

/* Destroy a window that is retired and unpinned. */
static void destroy(struct mmap_cache *w)
{
	if (!w)
		return;
	munmap(w->addr, w->len);
	LOCK_SCOPE(&cache.lock);
	cache.bytes -= w->len;
	cache.count--;
	pthread_cond_destroy(&w->filled);
	free(w);
}

static void before_fork(void) ACQUIRES(cache.lock)
{
	mutex_lock(&cache.lock);
}

static void after_fork_in_parent(void) RELEASES(cache.lock)
{
	mutex_unlock(&cache.lock);
}

static void abandon(struct hlink *e, void *arg) REQUIRES(cache.lock)
{
	struct mmap_cache *w = container_of(e, struct mmap_cache, hash);

	(void)arg;
	cache_policy_remove(&cache.policy, &w->policy, false);
	w->is_listed = false;
	if (w->pins)
		return;
	munmap(w->addr, w->len);
	cache.bytes -= w->len;
	cache.count--;
	free(w);
}

/* The threads that fill or pin windows do not exist in the child, which starts with an empty
 * cache. */
static void after_fork_in_child(void) RELEASES(cache.lock)
{
	htab_drain(&cache.table, abandon, NULL);
	mutex_unlock(&cache.lock);
}

static size_t count_limit(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned long n = MAPS_DEFAULT;

	if (f && fscanf(f, "%lu", &n) != 1)
		n = MAPS_DEFAULT;
	if (f)
		fclose(f);
	return n / MAPS_SHARE;
}

static void init_once(void)
{
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	size_t budget = pages > 0 ? (size_t)pages / BUDGET_SHARE * (size_t)page : 0;

	/* Everything here counts in pages of a block's size. */
	if (page != BLK_BYTES ||
	    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child))
		is_refused = true;
	LOCK_SCOPE(&cache.lock);
	cache.budget = MIN(budget, BUDGET_MAX);
	cache.count_max = count_limit();
	cache_policy_init(&cache.policy, cache.budget);
}

static uint64_t key_hash(const struct key *k)
{
	const uint64_t words[] = { k->dev, k->ino, k->index };

	return hash_key(words, sizeof(words), 0);
}

static struct mmap_cache *find_locked(const struct key *k)
{
	for (struct hlink *e = htab_first(&cache.table, key_hash(k)); e; e = htab_next(e)) {
		struct mmap_cache *w = container_of(e, struct mmap_cache, hash);

		if (w->key.dev == k->dev && w->key.ino == k->ino && w->key.index == k->index)
			return w;
	}
	return NULL;
}

static bool is_unpinned(const struct cache_policy_entry *e) REQUIRES(cache.lock)
{
	return !container_of(e, struct mmap_cache, policy)->pins;
}

/* Retire the coldest unpinned window; NULL: there is none. */
static struct mmap_cache *evict_locked(void) REQUIRES(cache.lock)
{
	struct cache_policy_entry *e = cache_policy_victim(&cache.policy, is_unpinned);
	struct mmap_cache *w = e ? container_of(e, struct mmap_cache, policy) : NULL;

	if (w) {
		retire_locked(w, true);
		stats_add(STATS_WINDOW_EVICTIONS, 1);
	}
	return w;
}

static void shrink_to(size_t bytes)
{
	for (;;) {
		struct mmap_cache *w = NULL;

		mutex_lock(&cache.lock);
		if (cache.bytes > bytes)
			w = evict_locked();
		mutex_unlock(&cache.lock);
		if (!w)
			return;
		destroy(w);
	}
}

/* Called when windows are made, without a thread of its own: existing windows are clean pages of
 * the page cache, which the kernel reclaims by itself. */
static void heed_pressure(void)
{
	const int64_t now = clock_s();
	bool is_due;

	mutex_lock(&cache.lock);
	is_due = now >= cache.next_check;
	if (is_due)
		cache.next_check = now + PRESSURE_CHECK_S;
	mutex_unlock(&cache.lock);
	if (is_due && pressure_some("memory") >= PRESSURE_HIGH)
		mmap_cache_shrink(50);
}

/* Reserve room for one more mapping. */
static int reserve(size_t len)
{
	heed_pressure();
	for (unsigned attempt = 0; attempt < RESERVE_TRIES; attempt++) {
		struct mmap_cache *w;

		mutex_lock(&cache.lock);
		if (cache.bytes + len <= cache.budget && cache.count < cache.count_max) {
			cache.bytes += len;
			cache.count++;
			mutex_unlock(&cache.lock);
			return 0;
		}
		w = evict_locked();
		mutex_unlock(&cache.lock);
		if (!w)
			return -EBUSY;
		destroy(w);
	}
	return -EBUSY;
}

static void unreserve(size_t len)
{
	LOCK_SCOPE(&cache.lock);
	cache.bytes -= len;
	cache.count--;
}

/* Are a mapping and read(2) always equal here, and inode numbers unique? Not, or not surely, on
 * overlayfs, whose mappings stay with the lower file, and on file systems that a remote or
 * user-space server decides (FUSE, NFS, ...). */
bool mmap_cache_serves(int fd)
{
	static const unsigned long known[] = {
		0xef53, /* ext2, ext3, ext4 */
		0x58465342, /* XFS */
		0x9123683e, /* btrfs */
		0x01021994, /* tmpfs */
		0xf2f52010, /* F2FS */
		0xe0f5e1e2, /* EROFS */
		0x73717368, /* squashfs */
	};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if ((unsigned long)fs.f_type == known[i])
			return true;
	return false;
}

static int make(const struct mmap_cache_file *f, const struct key *key, struct mmap_cache **ret)
{
	const uint64_t start = key->index * MMAP_CACHE_BYTES,
		       left = (uint64_t)f->st.st_size - start;
	struct mmap_cache *w;
	void *addr;
	int r;

	if (!mmap_cache_serves(f->fd))
		return -EOPNOTSUPP;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->len = left >= MMAP_CACHE_BYTES ? MMAP_CACHE_BYTES
					  : (left + BLK_BYTES - 1) / BLK_BYTES * BLK_BYTES;
	r = reserve(w->len);
	if (r < 0) {
		free(w);
		return r;
	}
	addr = mmap(NULL, w->len, PROT_READ, MAP_SHARED, f->fd, (off_t)start);
	if (addr == MAP_FAILED) {
		r = -errno;
		unreserve(w->len);
		free(w);
		return r;
	}
	w->key = *key;
	w->owner = f->owner;
	w->addr = addr;
	pthread_cond_init(&w->filled, NULL);
	*ret = w;
	return 0;
}

/* Find and pin the listed window with room for need bytes. A shorter one dates from before the file
 * grew: retire it, and set *ret_dead if it must be destroyed. */
static struct mmap_cache *take_locked(const struct key *key, size_t need,
				      struct mmap_cache **ret_dead) REQUIRES(cache.lock)
{
	struct mmap_cache *w = find_locked(key);

	if (w && w->len < need) {
		retire_locked(w, false);
		*ret_dead = w->pins ? NULL : w;
		return NULL;
	}
	if (w)
		w->pins++;
	return w;
}

/* List w, pinned, or pin the window of another thread that was first. 0 or -ENOMEM. */
static int list(struct mmap_cache *w, size_t need, struct mmap_cache **ret)
{
	struct mmap_cache *first, *dead = NULL;
	int r = 0;

	mutex_lock(&cache.lock);
	first = take_locked(&w->key, need, &dead);
	if (!first) {
		uint64_t hash = key_hash(&w->key);

		r = htab_insert(&cache.table, &w->hash, hash);
		if (r == 0) {
			cache_policy_add(&cache.policy, &w->policy, hash, w->len);
			w->is_listed = true;
			w->pins = 1;
			INVARIANTS(mmap_cache_check_invariants());
		}
	}
	mutex_unlock(&cache.lock);
	destroy(dead);
	if (first || r < 0)
		destroy(w);
	*ret = first ? first : w;
	return r;
}

int mmap_cache_pin(const struct mmap_cache_file *f, uint64_t off, size_t len,
		   struct mmap_cache_part *ret)
{
	const struct key key = { f->st.st_dev, f->st.st_ino, off / MMAP_CACHE_BYTES };
	const size_t at = off % MMAP_CACHE_BYTES;
	struct mmap_cache *w, *dead = NULL;
	int r;

	pthread_once(&once, init_once);
	if (is_refused || !len || f->st.st_size < 0 || off >= (uint64_t)f->st.st_size)
		return -EOPNOTSUPP;
	if (len > MMAP_CACHE_BYTES - at)
		len = MMAP_CACHE_BYTES - at;
	if (len > (uint64_t)f->st.st_size - off)
		len = (size_t)((uint64_t)f->st.st_size - off);
	mutex_lock(&cache.lock);
	w = take_locked(&key, at + len, &dead);
	mutex_unlock(&cache.lock);
	destroy(dead);
	if (!w) {
		r = make(f, &key, &w);
		if (r == 0)
			r = list(w, at + len, &w);
		if (r < 0)
			return r;
	}
	*ret = (struct mmap_cache_part){ .w = w, .p = w->addr + at, .len = len };
	return 0;
}

void mmap_cache_unpin(struct mmap_cache *w)
{
	bool is_dead = false;

	mutex_lock(&cache.lock);
	if (--w->pins == 0) {
		if (w->is_listed && cache.bytes > cache.budget)
			retire_locked(w, true);
		is_dead = !w->is_listed;
	}
	INVARIANTS(mmap_cache_check_invariants());
	mutex_unlock(&cache.lock);
	if (is_dead)
		destroy(w);
}

static struct pages pages_of(const struct mmap_cache_part *part)
{
	const size_t at = (size_t)((char *)part->p - part->w->addr);
	const unsigned first = (unsigned)(at / BLK_BYTES),
		       last = (unsigned)((at + part->len - 1) / BLK_BYTES);
	struct pages set = { 0 };

	for (unsigned k = 0; k < WORDS; k++) {
		const unsigned lo = k * 64;
		const unsigned from = first > lo ? first - lo : 0,
			       to = last < lo + 63 ? last - lo : 63;

		if (first < lo + 64 && last >= lo)
			set.word[k] = ~0ull << from & ~0ull >> (63 - to);
	}
	return set;
}

static unsigned count(const struct pages *set)
{
	unsigned n = 0;

	for (unsigned k = 0; k < WORDS; k++)
		n += (unsigned)__builtin_popcountll(set->word[k]);
	return n;
}

static struct pages without(struct pages a, const struct pages *b)
{
	for (unsigned k = 0; k < WORDS; k++)
		a.word[k] &= ~b->word[k];
	return a;
}

static bool meets(const struct pages *a, const struct pages *b)
{
	for (unsigned k = 0; k < WORDS; k++)
		if (a->word[k] & b->word[k])
			return true;
	return false;
}

static void set_range(struct pages *set, unsigned first, unsigned n, bool is_in)
{
	for (unsigned i = first; i < first + n; i++) {
		if (is_in)
			set->word[i / 64] |= 1ull << i % 64;
		else
			set->word[i / 64] &= ~(1ull << i % 64);
	}
}

/* The first run of pages in the set. False: it is empty. */
static bool first_run(const struct pages *set, unsigned *ret_first, unsigned *ret_n)
{
	unsigned i = 0, n = 0;

	while (i < PAGES && !(set->word[i / 64] >> i % 64 & 1))
		i++;
	while (i + n < PAGES && set->word[(i + n) / 64] >> (i + n) % 64 & 1)
		n++;
	*ret_first = i;
	*ret_n = n;
	return n > 0;
}

/* Pages that this thread is filling, and their windows. */
struct fill {
	struct ring_area areas[FILL_AREAS];
	struct mmap_cache *windows[FILL_AREAS];
	size_t n;
};

/* Claim missing pages; returns their number, fewer than are missing if the list is full. */
static unsigned claim_locked(struct fill *f, const struct mmap_cache_part *part)
{
	struct mmap_cache *w = part->w;
	struct pages missing = without(without(pages_of(part), &w->resident), &w->filling);
	unsigned first, n, total = 0;

	while (f->n < FILL_AREAS && first_run(&missing, &first, &n)) {
		f->areas[f->n] = (struct ring_area){ .addr = w->addr + (size_t)first * BLK_BYTES,
						     .len = (size_t)n * BLK_BYTES };
		f->windows[f->n++] = w;
		set_range(&w->filling, first, n, true);
		set_range(&missing, first, n, false);
		total += n;
	}
	INVARIANTS(mmap_cache_check_invariants());
	return total;
}

static void run_fill(struct fill *f)
{
	ring_populate_all(f->areas, f->n);
	LOCK_SCOPE(&cache.lock);
	for (size_t i = 0; i < f->n; i++) {
		struct mmap_cache *w = f->windows[i];
		const unsigned first =
			(unsigned)((size_t)((char *)f->areas[i].addr - w->addr) / BLK_BYTES);
		const unsigned n = (unsigned)(f->areas[i].len / BLK_BYTES);

		if (f->areas[i].result == -EINVAL)
			is_refused = true;
		set_range(&w->filling, first, n, false);
		if (f->areas[i].result == 0)
			set_range(&w->resident, first, n, true);
		pthread_cond_broadcast(&w->filled);
	}
	INVARIANTS(mmap_cache_check_invariants());
	f->n = 0;
}

/* Only parts that were mostly resident count as used again. */
static unsigned note_use_locked(const struct mmap_cache_part *part) REQUIRES(cache.lock)
{
	const struct pages wanted = pages_of(part), missing = without(wanted, &part->w->resident);
	const unsigned n = count(&wanted);

	if (part->w->is_listed)
		cache_policy_touch(&cache.policy, &part->w->policy, count(&missing) * 2 < n);
	return n;
}

static void fill_missing(struct mmap_cache_part *parts, size_t n)
{
	uint64_t nwanted = 0, nfilled = 0;
	struct fill f = { .n = 0 };

	mutex_lock(&cache.lock);
	for (size_t i = 0; i < n; i++)
		nwanted += note_use_locked(&parts[i]);
	for (size_t i = 0; i < n; i++) {
		nfilled += claim_locked(&f, &parts[i]);
		if (f.n < FILL_AREAS)
			continue;
		mutex_unlock(&cache.lock);
		run_fill(&f);
		mutex_lock(&cache.lock);
		i--; /* the part may have more */
	}
	mutex_unlock(&cache.lock);
	if (f.n)
		run_fill(&f);
	stats_add(STATS_WINDOW_HITS, nwanted - nfilled);
	stats_add(STATS_WINDOW_MISSES, nfilled);
}

void mmap_cache_fill(struct mmap_cache_part *parts, size_t n)
{
	fill_missing(parts, n);
	LOCK_SCOPE(&cache.lock);
	for (size_t i = 0; i < n; i++) {
		struct mmap_cache *w = parts[i].w;
		const struct pages wanted = pages_of(&parts[i]);
		struct pages missing;

		while (meets(&wanted, &w->filling))
			pthread_cond_wait(&w->filled, &cache.lock);
		missing = without(wanted, &w->resident);
		parts[i].result = count(&missing) ? -EIO : 0;
	}
}

void mmap_cache_drop(struct mmap_cache *w)
{
	LOCK_SCOPE(&cache.lock);
	if (w->is_listed)
		retire_locked(w, false);
}

struct forget {
	const void *owner;
	struct mmap_cache *dead[FILL_AREAS];
	size_t n;
};

/* True: there may be more windows. */
static bool forget_some(struct forget *f)
{
	LOCK_SCOPE(&cache.lock);
	f->n = 0;
	for (int q = 0; q < CACHE_POLICY_QUEUES; q++) {
		struct list_link *head = &cache.policy.order[q], *next;

		for (struct list_link *l = head->next; l != head && f->n < FILL_AREAS; l = next) {
			struct mmap_cache *w =
				container_of(container_of(l, struct cache_policy_entry, order),
					     struct mmap_cache, policy);

			next = l->next;
			if (w->owner != f->owner)
				continue;
			retire_locked(w, false);
			if (!w->pins)
				f->dead[f->n++] = w;
		}
	}
	return f->n == FILL_AREAS;
}

void mmap_cache_forget(const void *owner)
{
	struct forget f = { .owner = owner };
	bool is_more;

	pthread_once(&once, init_once);
	do {
		is_more = forget_some(&f);
		for (size_t i = 0; i < f.n; i++)
			destroy(f.dead[i]);
	} while (is_more);
}

void mmap_cache_set_budget(size_t bytes)
{
	pthread_once(&once, init_once);
	mutex_lock(&cache.lock);
	cache.budget = bytes;
	cache_policy_set_budget(&cache.policy, bytes);
	mutex_unlock(&cache.lock);
	shrink_to(bytes);
}

void mmap_cache_shrink(unsigned percent)
{
	size_t keep;

	mutex_lock(&cache.lock);
	keep = percent < 100 ? (size_t)((uint64_t)cache.bytes * (100 - percent) / 100) : 0;
	mutex_unlock(&cache.lock);
	shrink_to(keep);
}

void mmap_cache_usage(struct mmap_cache_usage *ret)
{
	pthread_once(&once, init_once);
	LOCK_SCOPE(&cache.lock);
	*ret = (struct mmap_cache_usage){ .bytes = cache.bytes,
					  .count = cache.count,
					  .budget = cache.budget };
}

/* ---- invariants ---- */

static const char *window_check(struct mmap_cache *w) REQUIRES(cache.lock)
{
	if (!w->is_listed || find_locked(&w->key) != w)
		return "mmap_cache: a window in the queues is in the table, alone of its key";
	if (!w->len || w->len > MMAP_CACHE_BYTES || w->policy.bytes != w->len)
		return "mmap_cache: the queues know the length of a window";
	if (meets(&w->resident, &w->filling))
		return "mmap_cache: a page that is being filled is not resident";
	return NULL;
}

const char *mmap_cache_check_invariants(void) UNCHECKED_LOCKS
{
	const struct cache_policy *p = &cache.policy;
	const char *broken = NULL;
	size_t bytes = 0, n = 0;

	for (int q = 0; q < CACHE_POLICY_QUEUES; q++) {
		const struct list_link *l = p->order[q].next;

		for (; l != &p->order[q] && n < INVARIANTS_MAX && !broken; l = l->next) {
			struct mmap_cache *w =
				container_of(container_of(l, struct cache_policy_entry, order),
					     struct mmap_cache, policy);

			broken = window_check(w);
			bytes += w->len;
			n++;
		}
	}
	if (!broken && p->count != cache.table.count)
		broken = "mmap_cache: the table and the queues have the same windows";
	if (!broken && (p->count > cache.count || p->bytes[0] + p->bytes[1] > cache.bytes))
		broken = "mmap_cache: each window in the queues is counted";
	if (!broken && p->count < INVARIANTS_MAX &&
	    (n != p->count || bytes != p->bytes[0] + p->bytes[1]))
		broken = "mmap_cache: the queues are as long as they say";
	return broken;
}
