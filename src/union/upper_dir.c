// SPDX-License-Identifier: Apache-2.0
/* A name's position in listings is its hash, so that a directory stream continues at its place
 * after another server has taken over. `order` is sorted on demand: until then new names are at the
 * end. */
#include "veneer/union/upper_dir.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/listing_place.h"
#include "veneer/base/lock.h"
#include "veneer/base/stats.h"

#include <dirent.h>
#include <stdatomic.h>
#include <string.h>

#define GROUP_KNOWN	(1ull << 32)
#define GROUP_FORGOTTEN (1ull << 33)

struct entry {
	struct hlink link;
	struct hlink by_seq;
	size_t at; /* in `order` */
	struct list_link changed; /* in the list of entries to count again */
	struct upper_dir_entry e;
	int8_t counted; /* its contribution to nsubdirs */
	char name[];
};

/* A removed entry leaves its place in `order` empty; the array is compacted when half of it is
 * empty. */
struct place {
	uint64_t seq;
	struct entry *entry;
};

struct upper_dir {
	mutex_t lock;
	GUARDED_BY(lock) struct htab names, by_seq;
	GUARDED_BY(lock) struct place *order;
	GUARDED_BY(lock) size_t n, nsorted, cap; /* nsorted of them are sorted */
	_Atomic uint64_t version; /* also read without the lock */
	_Atomic bool has_default_acl;
	_Atomic uint64_t group; /* a gid, GROUP_KNOWN, and a count of forgets */
	/* entries that changed since they were counted in nsubdirs */
	GUARDED_BY(lock) struct list_link changed;
	GUARDED_BY(lock) ssize_t nsubdirs;
};

struct upper_dir *upper_dir_new(void)
{
	struct upper_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	stats_memory_took(STATS_MEM_INODES, d);
	mutex_init(&d->lock);
	list_init(&d->changed);
	return d;
}

static void free_entry(struct hlink *l, void *arg)
{
	struct entry *e = container_of(l, struct entry, link);

	(void)arg;
	stats_memory_gives(STATS_MEM_INODES, e);
	free(e);
}

void upper_dir_free(struct upper_dir *d)
{
	if (!d)
		return;
	lock_is_private(&d->lock);
	htab_drain(&d->names, free_entry, NULL);
	htab_release(&d->names);
	htab_release(&d->by_seq);
	stats_memory_gives(STATS_MEM_INODES, d->order);
	free(d->order);
	mutex_destroy(&d->lock);
	stats_memory_gives(STATS_MEM_INODES, d);
	free(d);
}

static struct entry *find_locked(struct upper_dir *d, const char *name, uint64_t hash)
{
	for (struct hlink *l = htab_first(&d->names, hash); l; l = htab_next(l)) {
		struct entry *e = container_of(l, struct entry, link);

		if (!strcmp(e->name, name))
			return e;
	}
	return NULL;
}

/* Index of the first place with a seq >= seq; all are sorted. */
static size_t place_of(const struct upper_dir *d, uint64_t seq) REQUIRES(d->lock)
{
	size_t lo = 0, hi = d->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->order[mid].seq < seq)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void put_at(struct upper_dir *d, size_t at, struct place p) REQUIRES(d->lock)
{
	d->order[at] = p;
	if (p.entry)
		p.entry->at = at;
}

static void squeeze(struct upper_dir *d) REQUIRES(d->lock)
{
	size_t n = 0, nsorted = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (d->order[i].entry)
			put_at(d, n++, d->order[i]);
		if (i < d->nsorted)
			nsorted = n;
	}
	d->n = n;
	d->nsorted = nsorted;
}

static int by_seq(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Usually few are new: sort those, and merge from the end. Without memory for that, sort all. */
static void sort_locked(struct upper_dir *d) REQUIRES(d->lock)
{
	size_t nnew = d->n - d->nsorted, i = d->nsorted, k = nnew, to = d->n;
	struct place *new;

	if (!nnew)
		return;
	new = malloc(nnew * sizeof(*new));
	if (new) {
		memcpy(new, d->order + d->nsorted, nnew * sizeof(*new));
		qsort(new, nnew, sizeof(*new), by_seq);
		while (k)
			put_at(d, --to,
			       i && d->order[i - 1].seq > new[k - 1].seq ? d->order[--i]
									 : new[--k]);
		free(new);
	} else {
		qsort(d->order, d->n, sizeof(*d->order), by_seq);
		for (size_t at = 0; at < d->n; at++)
			put_at(d, at, d->order[at]);
	}
	d->nsorted = d->n;
}

/* Of two names of one hash the later one comes after the other. */
static uint64_t free_seq(const struct upper_dir *d, uint64_t hash)
{
	uint64_t seq = listing_place(hash, true);

	while (htab_first(&d->by_seq, seq))
		seq = (seq + LISTING_PLACE_STEP) & LISTING_PLACE_MASK;
	return seq;
}

static int append_locked(struct upper_dir *d, struct entry *e, uint64_t hash) REQUIRES(d->lock)
{
	if (d->n == d->cap && d->names.count < d->n / 2)
		squeeze(d);
	if (d->n == d->cap) {
		int r;

		stats_memory_gives(STATS_MEM_INODES, d->order);
		r = array_reserve(&d->order, &d->cap, d->n + 1);
		stats_memory_took(STATS_MEM_INODES, d->order);
		if (r < 0)
			return r;
	}
	e->e.seq = free_seq(d, hash);
	if (htab_insert(&d->by_seq, &e->by_seq, e->e.seq) < 0)
		return -ENOMEM;
	put_at(d, d->n++, (struct place){ e->e.seq, e });
	return 0;
}

int upper_dir_set(struct upper_dir *d, const char *name, const struct upper_dir_entry *e)
{
	uint64_t hash = hash_key(name, strlen(name), 0);
	size_t len = strlen(name) + 1;
	struct entry *entry;
	uint64_t seq;
	int r;

	LOCK_SCOPE(&d->lock);
	d->version++;
	entry = find_locked(d, name, hash);
	if (entry) {
		seq = entry->e.seq;
		entry->e = *e;
		entry->e.seq = seq;
		list_del(&entry->changed);
		list_add_tail(&d->changed, &entry->changed);
		return 0;
	}
	entry = malloc(sizeof(*entry) + len);
	if (!entry)
		return -ENOMEM;
	entry->e = *e;
	entry->counted = 0;
	memcpy(entry->name, name, len);
	r = append_locked(d, entry, hash);
	if (r == 0) {
		r = htab_insert(&d->names, &entry->link, hash);
		if (r < 0) {
			d->n--;
			htab_remove(&d->by_seq, &entry->by_seq);
		}
	}
	if (r < 0) {
		free(entry);
	} else {
		stats_memory_took(STATS_MEM_INODES, entry);
		list_add_tail(&d->changed, &entry->changed);
	}
	return r;
}

int upper_dir_reserve(struct upper_dir *d, const char *name, bool is_below, bool *ret_is_new)
{
	const struct upper_dir_entry placeholder = { .is_whiteout = true, .is_below = is_below };
	struct upper_dir_entry there;

	*ret_is_new = !upper_dir_find(d, name, &there);
	return *ret_is_new ? upper_dir_set(d, name, &placeholder) : 0;
}

void upper_dir_remove(struct upper_dir *d, const char *name)
{
	struct entry *e;

	LOCK_SCOPE(&d->lock);
	d->version++;
	e = find_locked(d, name, hash_key(name, strlen(name), 0));
	if (!e)
		return;
	d->order[e->at].entry = NULL;
	htab_remove(&d->names, &e->link);
	htab_remove(&d->by_seq, &e->by_seq);
	list_del(&e->changed);
	d->nsubdirs -= e->counted;
	stats_memory_gives(STATS_MEM_INODES, e);
	free(e);
}

bool upper_dir_find(struct upper_dir *d, const char *name, struct upper_dir_entry *ret)
{
	struct entry *e;

	LOCK_SCOPE(&d->lock);
	e = find_locked(d, name, hash_key(name, strlen(name), 0));
	if (!e)
		return false;
	*ret = e->e;
	return true;
}

bool upper_dir_next(struct upper_dir *d, uint64_t *seq, char *name, struct upper_dir_entry *ret)
{
	LOCK_SCOPE(&d->lock);
	sort_locked(d);
	for (size_t i = place_of(d, *seq); i < d->n; i++) {
		struct entry *e = d->order[i].entry;

		if (!e || e->e.is_whiteout || e->e.is_below)
			continue;
		*seq = e->e.seq;
		strcpy(name, e->name);
		*ret = e->e;
		return true;
	}
	return false;
}

int upper_dir_each(struct upper_dir *d,
		   int (*fn)(void *arg, const char *name, const struct upper_dir_entry *e),
		   void *arg)
{
	LOCK_SCOPE(&d->lock);
	for (size_t i = 0; i < d->n; i++) {
		struct entry *e = d->order[i].entry;
		int r = e ? fn(arg, e->name, &e->e) : 0;

		if (r)
			return r;
	}
	return 0;
}

size_t upper_dir_count(struct upper_dir *d)
{
	LOCK_SCOPE(&d->lock);
	return d->names.count;
}

ssize_t upper_dir_subdirs(struct upper_dir *d, bool (*is_dir_below)(void *arg, const char *name),
			  void *arg)
{
	LOCK_SCOPE(&d->lock);
	while (!list_is_empty(&d->changed)) {
		struct entry *e = container_of(d->changed.next, struct entry, changed);
		int8_t now = (int8_t)((!e->e.is_whiteout && e->e.type == DT_DIR) -
				      (e->e.is_below && is_dir_below(arg, e->name)));

		d->nsubdirs += now - e->counted;
		e->counted = now;
		list_del(&e->changed);
		list_init(&e->changed);
	}
	return d->nsubdirs;
}

void upper_dir_touch(struct upper_dir *d)
{
	d->version++;
}

uint64_t upper_dir_version(struct upper_dir *d)
{
	return d->version;
}

void upper_dir_note_default_acl(struct upper_dir *d, bool has_one)
{
	d->has_default_acl = has_one;
}

bool upper_dir_has_default_acl(const struct upper_dir *d)
{
	return d->has_default_acl;
}

bool upper_dir_group(const struct upper_dir *d, gid_t *ret_gid, uint64_t *ret_seen)
{
	*ret_seen = d->group;
	*ret_gid = (gid_t)*ret_seen;
	return *ret_seen & GROUP_KNOWN;
}

void upper_dir_note_group(struct upper_dir *d, uint64_t seen, gid_t gid)
{
	const uint64_t times = seen & ~(GROUP_FORGOTTEN - 1);

	atomic_compare_exchange_strong(&d->group, &seen, times | GROUP_KNOWN | gid);
}

void upper_dir_forget_group(struct upper_dir *d)
{
	uint64_t seen = d->group;

	while (!atomic_compare_exchange_weak(&d->group, &seen,
					     (seen & ~(GROUP_FORGOTTEN - 1)) + GROUP_FORGOTTEN))
		;
}
