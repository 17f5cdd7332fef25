// SPDX-License-Identifier: Apache-2.0
/* The table belongs to the thread. Other threads enter and take out members, and the thread updates
 * its table in the next round.
 *
 * It holds no lock while the kernel drops pages, and answers no requests, since the kernel may wait
 * for a page that a READ under way brings. An inode's lock is only tried: a writer may hold it as
 * long as a disk takes. */
#include "veneer/jobs/page_dup_limiter.h"

#include "mount_registry.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/page_events.h"
#include "veneer/base/stats.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"
#include "veneer/sys/kernel_evict.h"
#include "veneer/sys/mem_usage.h"
#include "veneer/sys/mmap_cache.h"
#include "veneer/sys/thread.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define INTERVAL_MS	20 /* between two reads of the events: HP-Mapper's scan_interval */
#define EVICT_MS	160 /* between two slices, which take a child process or more a mount */
#define ADJUST_MS	200 /* between two looks at memory while there is work */
#define WATCH_MS	1000 /* and while there is none */
#define PRESSED_PERCENT 100u
#define VICTIMS_MAX	1024 /* of one slice */
#define RANGES_MAX	256 /* of one child */
#define MAPPED_MS	2000 /* between two checks whether a program is in use */
#define STACK_SIZE	(256u << 10)
#define NICE		5

struct member {
	struct mount_registry_member registered;
	uint32_t wish;
	int fuse_fd;
	struct union_fs *tree;
};

static struct {
	struct mount_registry mounts;
	GUARDED_BY(mounts.lock) bool has_thread, has_changed;
	GUARDED_BY(mounts.lock) struct page_dup_limiter_usage usage;
} limiter = { .mounts = MOUNT_REGISTRY_INIT(limiter.mounts) };

static struct member *member_of(struct mount_registry_member *m)
{
	return m ? container_of(m, struct member, registered) : NULL;
}

/* Used by the thread alone. */
struct state {
	struct page_dups *copies;
	uint32_t now_ms;
	uint64_t child_ns;
	uint32_t adjusted_ms, evicted_ms;
	bool has_adjusted, has_evicted, has_noted;
	struct page_dups_victim victims[VICTIMS_MAX];
	struct kernel_evict_range ranges[RANGES_MAX];
};

static uint64_t own_cpu_ns(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- pages sent ---- */

bool page_dup_limiter_describe(const struct inode *i, struct union_fs *t, uint64_t off,
			       uint64_t len, struct page_dup_limiter_note *ret)
{
	const uint64_t end = off + len;
	struct layer *const *layers;
	const struct image_entry *e = inode_lower(i);

	if (!len || !e || (inode_has_upper(i) && !inode_partial_id(i)) ||
	    end / CHUNK_BYTES >= UINT32_MAX)
		return false;
	image_layers(t->image, &layers);
	ret->first.key = (struct page_dups_key){ layers[e->layer]->dev, e->d_ino,
						 (uint32_t)(off / CHUNK_BYTES) };
	ret->first.node = inode_id(i);
	ret->count = (uint32_t)((end - 1) / CHUNK_BYTES - off / CHUNK_BYTES) + 1;
	ret->last_nblk = (uint32_t)((end - 1) % CHUNK_BYTES / BLK_BYTES) + 1;
	return true;
}

void page_dup_limiter_sent(const struct page_dup_limiter_note *n)
{
	struct page_dups_sent s = n->first;

	for (uint32_t k = 0; k < n->count; k++, s.key.index++) {
		s.nblk = k + 1 == n->count ? n->last_nblk : CHUNK_BLKS;
		page_events_note(&s);
	}
}

static struct member *find_locked(uint32_t number) REQUIRES(limiter.mounts.lock)
{
	return member_of(mount_registry_find(&limiter.mounts, number));
}

static void count_refault(uint32_t number)
{
	struct member *m;

	LOCK_SCOPE(&limiter.mounts.lock);
	m = find_locked(number);
	if (m) {
		stats_enter(m->tree->stats);
		stats_add(STATS_COPIES_REFAULTS, 1);
		stats_enter(NULL);
	}
}

static void note_sent(void *arg, const struct page_dups_sent *s)
{
	struct state *st = arg;

	st->has_noted = true;
	log_debug("sent %u: %u %u %llu %llu %u %u %u", st->now_ms, s->mount, s->node,
		  (unsigned long long)s->key.dev, (unsigned long long)s->key.ino, s->key.index,
		  s->nblk, s->reader);
	if (page_dups_note(st->copies, s, st->now_ms) > 0)
		count_refault(s->mount);
}

/* ---- pages to drop ---- */

static bool looks_like_program(struct union_fs *t, struct inode *i)
{
	struct stat st;

	return strstr(inode_lower(i)->name, ".so") ||
	       (image_stat(t->image, inode_lower(i), &st) == 0 && st.st_mode & 0111);
}

static bool is_alive(uint32_t pid)
{
	return pid && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* List the lower blocks of the copy in the extent. */
static int runs_of(struct union_fs *t, struct inode *i, const struct page_dups_victim *v,
		   struct kernel_evict_range *out, size_t max)
{
	const uint64_t start = (uint64_t)v->key.index * CHUNK_BYTES;
	struct source *top;
	int r = read_top(t, i, &top);
	size_t n = 0;

	for (uint64_t off = start; r == 0 && off < start + CHUNK_BYTES && n < max;) {
		struct run run;

		r = run_find(top, off, start + CHUNK_BYTES - off, &run);
		if (r < 0)
			break;
		off += run.len;
		if (!run.src || run.src == top)
			continue;
		if (n && out[n - 1].off + out[n - 1].len == run.off)
			out[n - 1].len += run.len;
		else
			out[n++] = (struct kernel_evict_range){ v->node, run.off, run.len };
	}
	return r < 0 ? 0 : (int)n;
}

/* The inode's lock is held. */
static int ranges_of(struct union_fs *t, struct inode *i, const struct page_dups_victim *v,
		     struct kernel_evict_range *out, size_t max)
{
	struct page_dup_limiter_note n;

	/* The node id may be another file's by now; and a file that was copied whole shares no
	 * bytes. */
	if (!inode_is_regular(i) ||
	    !page_dup_limiter_describe(i, t, (uint64_t)v->key.index * CHUNK_BYTES, 1, &n) ||
	    n.first.key.dev != v->key.dev || n.first.key.ino != v->key.ino)
		return 0;
	if (looks_like_program(t, i) && is_alive(v->reader))
		return -EBUSY;
	if (inode_has_upper(i))
		return runs_of(t, i, v, out, max);
	out[0] = (struct kernel_evict_range){ v->node, (uint64_t)v->key.index * CHUNK_BYTES,
					      CHUNK_BYTES };
	return 1;
}

/* The number of ranges; 0: nothing to drop; -EBUSY: not now; -ENOSPC: no room. */
static int find_ranges(struct union_fs *t, const struct page_dups_victim *v,
		       struct kernel_evict_range *out, size_t max)
{
	struct inode *i;
	int n = -EBUSY;

	/* Every other block may be own. */
	if (max < CHUNK_BLKS / 2)
		return -ENOSPC;
	i = inode_hold(t, v->node);
	if (!i)
		return 0;
	if (inode_try_lock_shared(i)) {
		n = ranges_of(t, i, v, out, max);
		inode_unlock_shared(i);
	}
	inode_unref(t, i);
	return n;
}

static void keep_victims(struct state *st, const struct page_dups_victim *v, size_t n)
{
	for (size_t k = 0; k < n; k++)
		page_dups_kept(st->copies, &v[k], st->now_ms, WATCH_MS);
}

/* Drop as many victims of one mount as fit. Returns their number. */
static size_t evict_some(struct state *st, const struct member *m, const struct page_dups_victim *v,
			 size_t n)
{
	size_t nranges = 0, k, ndropped = 0;
	uint64_t cpu_ns = 0;
	int done = 0;

	for (k = 0; k < n; k++) {
		int r = find_ranges(m->tree, &v[k], st->ranges + nranges, RANGES_MAX - nranges);

		if (r == -ENOSPC)
			break;
		if (r < 0)
			page_dups_kept(st->copies, &v[k], st->now_ms, MAPPED_MS);
		nranges += r < 0 ? 0 : (size_t)r;
		ndropped += r > 0;
	}
	if (nranges)
		done = kernel_evict_ranges(m->fuse_fd, st->ranges, nranges, &cpu_ns);
	st->child_ns += cpu_ns;
	if (done < 0) {
		log_debug("no pages can be dropped: %s", strerror(-done));
		keep_victims(st, v, k);
		return k;
	}
	stats_enter(m->tree->stats);
	stats_add(STATS_COPIES_EVICTED, ndropped);
	stats_enter(NULL);
	return k;
}

/* NULL: the mount is gone, or going. */
static struct member *pin(uint32_t number)
{
	struct member *m;

	LOCK_SCOPE(&limiter.mounts.lock);
	m = find_locked(number);
	if (m)
		m->registered.is_pinned = true;
	return m;
}

static void unpin(struct member *m)
{
	LOCK_SCOPE(&limiter.mounts.lock);
	mount_registry_unpin(&limiter.mounts, &m->registered);
}

static int by_mount(const void *a, const void *b)
{
	const struct page_dups_victim *x = a, *y = b;

	return COMPARE(x->mount, y->mount);
}

static void evict(struct state *st, size_t n)
{
	qsort(st->victims, n, sizeof(*st->victims), by_mount);
	for (size_t at = 0, of_mount; at < n; at += of_mount) {
		const struct page_dups_victim *v = &st->victims[at];
		struct member *m;

		for (of_mount = 1; at + of_mount < n && v[of_mount].mount == v->mount;)
			of_mount++;
		/* Unpin between two children: a thread that takes the mount out waits for one at
		 * most. */
		for (size_t k = 0; k < of_mount && (m = pin(v->mount)); unpin(m))
			k += evict_some(st, m, v + k, of_mount - k);
	}
}

/* ---- rounds ---- */

/* Bring the table's mounts up to date. Returns their number. */
static size_t update_members(struct state *st)
{
	const uint32_t *known;
	size_t n;

	LOCK_SCOPE(&limiter.mounts.lock);
	if (!limiter.has_changed)
		return page_dups_mounts(st->copies, &known);
	limiter.has_changed = false;
	n = page_dups_mounts(st->copies, &known);
	for (size_t j = n; j-- > 0;) {
		const uint32_t number = known[j];

		if (find_locked(number))
			continue;
		page_dups_leave(st->copies, number);
		page_dups_mounts(st->copies, &known);
	}
	n = page_dups_mounts(st->copies, &known);
	for (struct mount_registry_member *m = NULL;
	     (m = mount_registry_next(&limiter.mounts, m));) {
		if (n && m->number <= known[n - 1])
			continue;
		/* Without memory try again in the next round. */
		if (page_dups_join(st->copies, m->number, member_of(m)->wish) < 0) {
			limiter.has_changed = true;
			break;
		}
		n = page_dups_mounts(st->copies, &known);
	}
	return n;
}

static void adjust_to_memory(struct state *st)
{
	struct page_dups_usage u;
	struct mem_usage m;
	bool is_lower;

	if (!page_dups_heeds_memory(st->copies) ||
	    (st->has_adjusted && st->now_ms - st->adjusted_ms < ADJUST_MS))
		return;
	st->has_adjusted = true;
	st->adjusted_ms = st->now_ms;
	if (mem_usage_read(&m) < 0)
		return;
	page_dups_usage(st->copies, &u);
	is_lower = page_dups_adjust(
		st->copies, m.is_pressed ? PRESSED_PERCENT : mem_usage_percent(&m, u.extra_bytes));
	/* The backing files' pages stay in the page cache, so mapping them again takes no I/O. */
	if (is_lower)
		mmap_cache_shrink(50);
}

static void evict_slice(struct state *st)
{
	if (st->has_evicted && st->now_ms - st->evicted_ms < EVICT_MS)
		return;
	st->has_evicted = true;
	st->evicted_ms = st->now_ms;
	evict(st, page_dups_scan(st->copies, st->now_ms, st->victims, VICTIMS_MAX));
}

static void publish(struct state *st, bool is_running)
{
	struct page_dup_limiter_usage u = { .bytes = page_dups_bytes(st->copies),
					    .cpu_ns = own_cpu_ns() + st->child_ns,
					    .drop_ns = st->child_ns,
					    .lost = page_events_lost(),
					    .is_running = is_running };

	page_dups_usage(st->copies, &u.copies);
	LOCK_SCOPE(&limiter.mounts.lock);
	stats_memory_add(STATS_MEM_COPIES, (int64_t)u.bytes - (int64_t)limiter.usage.bytes);
	limiter.usage = u;
}

/* How long there is nothing to do; -1: until something changes. */
static int one_round(struct state *st, bool *ret_wants_any)
{
	const bool is_running = update_members(st) >= 2;
	uint32_t pause;

	st->now_ms = (uint32_t)clock_ms();
	st->has_noted = false;
	page_events_drain(note_sent, st);
	if (is_running) {
		adjust_to_memory(st);
		evict_slice(st);
	}
	publish(st, is_running);
	*ret_wants_any = false;
	if (!is_running)
		return -1;
	pause = page_dups_pause_ms(st->copies, st->now_ms);
	/* At most one reply in an interval wakes this thread. */
	if (st->has_noted || pause < INTERVAL_MS)
		return INTERVAL_MS;
	*ret_wants_any = true;
	if (page_dups_heeds_memory(st->copies) && pause > WATCH_MS)
		pause = WATCH_MS;
	return pause > INT32_MAX ? -1 : (int)pause;
}

static void *run(void *arg)
{
	struct state *st = arg;
	bool wants_any;

	/* This thread alone: programs and the threads that answer them come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	for (;;) {
		int pause = one_round(st, &wants_any);

		page_events_wait(pause, wants_any);
	}
	return NULL;
}

/* ---- mounts ---- */

static int start_thread_locked(void) REQUIRES(limiter.mounts.lock)
{
	struct state *st = calloc(1, sizeof(*st));
	int r = st ? page_dups_new(&page_dups_rules_default, &st->copies) : -ENOMEM;

	if (r == 0)
		r = thread_start_without_signals(run, st, STACK_SIZE);
	if (r < 0 && st) {
		page_dups_free(st->copies);
		free(st);
	}
	limiter.has_thread = r == 0;
	return r;
}

int page_dup_limiter_enter(struct union_fs *t, int fuse_fd, uint32_t wish, uint32_t *ret_number)
{
	struct member *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	*m = (struct member){ .wish = wish, .fuse_fd = fuse_fd, .tree = t };
	mutex_lock(&limiter.mounts.lock);
	r = limiter.has_thread ? 0 : start_thread_locked();
	if (r == 0) {
		mount_registry_enter(&limiter.mounts, &m->registered);
		*ret_number = m->registered.number;
		limiter.has_changed = true;
	}
	mutex_unlock(&limiter.mounts.lock);
	if (r == 0)
		page_events_wake();
	else
		free(m);
	return r;
}

void page_dup_limiter_leave(uint32_t number)
{
	if (!number)
		return;
	mutex_lock(&limiter.mounts.lock);
	limiter.has_changed = true;
	free(member_of(mount_registry_leave(&limiter.mounts, number)));
	mutex_unlock(&limiter.mounts.lock);
	page_events_wake();
}

void page_dup_limiter_usage(struct page_dup_limiter_usage *ret)
{
	LOCK_SCOPE(&limiter.mounts.lock);
	*ret = limiter.usage;
}
