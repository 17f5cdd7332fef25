// SPDX-License-Identifier: Apache-2.0
#include "veneer/updir.h"

#include "veneer/cleanup.h"
#include "veneer/hash.h"
#include "veneer/htab.h"
#include "veneer/list.h"
#include "veneer/stats.h"

#include <dirent.h>
#include <string.h>

struct entry {
	struct hlink link;
	struct list_link changed;	/* in the list of those to be counted again */
	struct upent e;
	int8_t counted;			/* what it adds to nsubdirs */
	char name[];
};

/* A removed entry leaves its place empty in `order`; the array is squeezed when half of it is. */
struct place {
	uint64_t seq;
	struct entry *entry;
};

struct updir {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct htab names;
	struct place *order;
	size_t n, cap;
	uint64_t next_seq;
	_Atomic uint64_t version;	/* read without it too */
	struct list_link changed;	/* entries that nsubdirs does not know as they are */
	ssize_t nsubdirs;
};

struct updir *updir_new(void)
{
	struct updir *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	stats_memory_took(STATS_MEM_INODES, d);
	pthread_mutex_init(&d->lock, NULL);
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

void updir_free(struct updir *d)
{
	if (!d)
		return;
	htab_drain(&d->names, free_entry, NULL);
	htab_release(&d->names);
	stats_memory_gives(STATS_MEM_INODES, d->order);
	free(d->order);
	pthread_mutex_destroy(&d->lock);
	stats_memory_gives(STATS_MEM_INODES, d);
	free(d);
}

static struct entry *find_locked(struct updir *d, const char *name, uint64_t hash)
{
	for (struct hlink *l = htab_first(&d->names, hash); l; l = htab_next(l)) {
		struct entry *e = container_of(l, struct entry, link);

		if (!strcmp(e->name, name))
			return e;
	}
	return NULL;
}

/* Index of the first place with a seq >= seq. */
static size_t place_of(const struct updir *d, uint64_t seq)
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

static void squeeze(struct updir *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		if (d->order[i].entry)
			d->order[n++] = d->order[i];
	d->n = n;
}

static int append_locked(struct updir *d, struct entry *e)
{
	if (d->n == d->cap && d->names.count < d->n / 2)
		squeeze(d);
	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 8;
		struct place *p;

		stats_memory_gives(STATS_MEM_INODES, d->order);
		p = realloc(d->order, cap * sizeof(*p));
		stats_memory_took(STATS_MEM_INODES, p ? p : d->order);
		if (!p)
			return -ENOMEM;
		d->order = p;
		d->cap = cap;
	}
	e->e.seq = d->next_seq++;
	d->order[d->n++] = (struct place){ e->e.seq, e };
	return 0;
}

int updir_set(struct updir *d, const char *name, const struct upent *e)
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
	r = append_locked(d, entry);
	if (r == 0) {
		r = htab_insert(&d->names, &entry->link, hash);
		if (r < 0)
			d->n--;
	}
	if (r < 0) {
		free(entry);
	} else {
		stats_memory_took(STATS_MEM_INODES, entry);
		list_add_tail(&d->changed, &entry->changed);
	}
	return r;
}

int updir_reserve(struct updir *d, const char *name, bool is_below, bool *ret_is_new)
{
	const struct upent placeholder = { .is_whiteout = true, .is_below = is_below };
	struct upent there;

	*ret_is_new = !updir_find(d, name, &there);
	return *ret_is_new ? updir_set(d, name, &placeholder) : 0;
}

void updir_remove(struct updir *d, const char *name)
{
	struct entry *e;

	LOCK_SCOPE(&d->lock);
	d->version++;
	e = find_locked(d, name, hash_key(name, strlen(name), 0));
	if (!e)
		return;
	d->order[place_of(d, e->e.seq)].entry = NULL;
	htab_remove(&d->names, &e->link);
	list_del(&e->changed);
	d->nsubdirs -= e->counted;
	stats_memory_gives(STATS_MEM_INODES, e);
	free(e);
}

bool updir_find(struct updir *d, const char *name, struct upent *ret)
{
	struct entry *e;

	LOCK_SCOPE(&d->lock);
	e = find_locked(d, name, hash_key(name, strlen(name), 0));
	if (!e)
		return false;
	*ret = e->e;
	return true;
}

bool updir_next(struct updir *d, uint64_t *seq, char *name, struct upent *ret)
{
	LOCK_SCOPE(&d->lock);
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

int updir_each(struct updir *d, int (*fn)(void *arg, const char *name, const struct upent *e), void *arg)
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

size_t updir_count(struct updir *d)
{
	LOCK_SCOPE(&d->lock);
	return d->names.count;
}

ssize_t updir_subdirs(struct updir *d, bool (*is_dir_below)(void *arg, const char *name), void *arg)
{
	LOCK_SCOPE(&d->lock);
	while (!list_is_empty(&d->changed)) {
		struct entry *e = container_of(d->changed.next, struct entry, changed);
		int8_t now = (int8_t)((!e->e.is_whiteout && e->e.type == DT_DIR) - (e->e.is_below && is_dir_below(arg, e->name)));

		d->nsubdirs += now - e->counted;
		e->counted = now;
		list_del(&e->changed);
		list_init(&e->changed);
	}
	return d->nsubdirs;
}

uint64_t updir_version(struct updir *d)
{
	return d->version;
}
