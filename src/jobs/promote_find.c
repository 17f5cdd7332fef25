// SPDX-License-Identifier: Apache-2.0
#include "promote_find.h"

#include "veneer/base/array.h"
#include "veneer/base/minmax.h"
#include "veneer/jobs/upper_walk.h"
#include "veneer/layer/image.h"

#include <stdlib.h>

static unsigned blks_of_chunk(uint64_t clip, uint64_t chunk)
{
	const uint64_t end = (clip + BLK_BYTES - 1) >> BLK_SHIFT, base = chunk * CHUNK_BLKS;

	return end - base < CHUNK_BLKS ? (unsigned)(end - base) : CHUNK_BLKS;
}

static unsigned count_bits(const uint64_t bits[2])
{
	return (unsigned)(__builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]));
}

bool promote_find_takes_chunk(uint64_t clip, uint64_t chunk, const uint64_t bits[2])
{
	return promote_policy_takes_chunk(count_bits(bits), blks_of_chunk(clip, chunk));
}

unsigned promote_find_pass(uint64_t clip, uint64_t chunk, const uint64_t bits[2])
{
	return promote_policy_pass(count_bits(bits), blks_of_chunk(clip, chunk));
}

uint64_t promote_find_missing(struct mapfile *map, file_id_t id, uint64_t clip)
{
	uint64_t n = (clip + BLK_BYTES - 1) >> BLK_SHIFT, chunk = 0, bits[2];

	for (; mapfile_next_chunk(map, id, &chunk, bits) == 1 && chunk * CHUNK_BYTES < clip;
	     chunk++)
		n -= MIN(n, count_bits(bits));
	return n << BLK_SHIFT;
}

bool promote_find_is_expected(const struct union_fs *t, const struct inode *i)
{
	const struct image_entry *e = t->completes_expected ? inode_lower(i) : NULL;

	return e && atomic_load_explicit(&e->is_expected_written, memory_order_relaxed);
}

bool promote_find_is_fatal(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EROFS || r == -EMFILE ||
	       r == -ENFILE;
}

static int by_id(const void *a, const void *b)
{
	const struct promote_find_candidate *c = a, *d = b;

	return COMPARE(c->id, d->id);
}

static int by_number(const void *a, const void *b)
{
	const file_id_t *m = a, *n = b;

	return COMPARE(*m, *n);
}

static struct promote_find_candidate *find_candidate(const struct promote_find *r, file_id_t id)
{
	const struct promote_find_candidate key = { .id = id };

	return id && r->n ? bsearch(&key, r->found, r->n, sizeof(key), by_id) : NULL;
}

static bool is_unfound(const struct promote_find *r, file_id_t id)
{
	return r->unfound->n && bsearch(&id, r->unfound->ids, r->unfound->n, sizeof(id), by_number);
}

/* Called with the map's lock. */
static void add_candidate(void *arg, file_id_t id, const struct blkmap *map)
{
	const uint64_t clip = blkmap_clip(map), all = (clip + BLK_BYTES - 1) >> BLK_SHIFT;
	struct promote_policy_file f = { .id = id };
	struct promote_find *r = arg;
	uint64_t chunk = 0, bits[2];

	for (; !blkmap_is_complete(map) && blkmap_next_chunk(map, &chunk, bits); chunk++) {
		if (promote_find_takes_chunk(clip, chunk, bits))
			f.missing += blks_of_chunk(clip, chunk) - count_bits(bits);
	}
	f.ends = blkmap_count(map) + f.missing == all;
	if (r->error || (!f.missing && !f.ends))
		return;
	r->error = array_reserve(&r->files, &r->cap, r->n + 1);
	if (r->error == 0)
		r->files[r->n++] = f;
}

static int collect(struct promote_find *r)
{
	mapfile_each(r->tree->map, add_candidate, r);
	if (r->error || !r->n)
		return r->error;
	promote_policy_order(r->files, r->n);
	r->found = calloc(r->n, sizeof(*r->found));
	if (!r->found)
		return -ENOMEM;
	for (size_t k = 0; k < r->n; k++) {
		r->found[k].id = r->files[k].id;
		r->n_wanted += !is_unfound(r, r->files[k].id);
	}
	qsort(r->found, r->n, sizeof(*r->found), by_id);
	return 0;
}

static void take_inode(struct promote_find *r, struct promote_find_candidate *c, struct inode *i)
{
	if (c->i)
		return;
	c->i = i;
	r->n_wanted -= !is_unfound(r, c->id);
}

static bool take_known(void *arg, struct inode *i)
{
	struct promote_find_candidate *c;

	if (!inode_is_regular(i) || !inode_is_resolved(i) || !inode_has_upper(i))
		return false;
	c = find_candidate(arg, inode_partial_id(i));
	if (!c || c->i)
		return false;
	take_inode(arg, c, i);
	return true;
}

static int check_entry(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct promote_find *r = arg;
	struct promote_find_candidate *c =
		inode_is_regular(i) ? find_candidate(r, inode_partial_id(i)) : NULL;
	int e = r->go_on(r->arg);

	(void)parent;
	(void)name;
	if (e < 0)
		return e;
	if (c && !c->i) {
		inode_ref(r->tree, i);
		take_inode(r, c, i);
	}
	/* All are found. */
	return r->n_wanted ? 0 : -EEXIST;
}

static int skip_entry(void *arg, struct inode *parent, const char *name, int error)
{
	(void)arg;
	(void)parent;
	(void)name;
	return promote_find_is_fatal(error) ? error : 0;
}

/* Remember files that were not found, so that no later round searches for them. */
static int remember_unfound(struct promote_find *r)
{
	file_id_t *unfound = calloc(r->n, sizeof(*unfound));
	size_t n = 0;

	if (!unfound)
		return -ENOMEM;
	for (size_t k = 0; k < r->n; k++)
		if (!r->found[k].i)
			unfound[n++] = r->found[k].id;
	free(r->unfound->ids);
	*r->unfound = (struct promote_find_unfound){ unfound, n };
	return 0;
}

static int find_others(struct promote_find *r)
{
	static const struct upper_walk_hooks hooks = { .entry = check_entry, .miss = skip_entry };
	int e;

	if (!r->n_wanted)
		return 0;
	e = upper_walk(r->tree, &hooks, r);
	return e == -EEXIST ? 0 : e ?: remember_unfound(r);
}

/* Called with the table's lock. */
static bool take_written(void *arg, struct inode *i)
{
	struct promote_find *r = arg;
	file_id_t id;

	if (r->error || !inode_is_regular(i) || !inode_is_resolved(i) || !inode_has_upper(i) ||
	    (inode_writes(i) < PROMOTE_POLICY_WRITES &&
	     !(inode_writes(i) && promote_find_is_expected(r->tree, i))))
		return false;
	id = inode_partial_id(i);
	if (!id)
		return false;
	r->error = array_reserve(&r->files, &r->cap, r->n + 1)
			   ?: array_reserve(&r->found, &r->found_cap, r->n + 1);
	if (r->error)
		return false;
	r->files[r->n] = (struct promote_policy_file){ .id = id, .writes = inode_writes(i) };
	r->found[r->n++] = (struct promote_find_candidate){ .id = id, .i = i };
	return true;
}

/* The files to be completed, each with its inode if that can be found. */
int promote_find_run(struct promote_find *r)
{
	struct union_fs *t = r->tree;
	int e;

	if (r->mode == PROMOTE_POLICY_WRITTEN) {
		inode_each(t, take_written, r);
		promote_policy_order(r->files, r->n);
		if (r->n)
			qsort(r->found, r->n, sizeof(*r->found), by_id);
		return r->error;
	}
	e = collect(r);
	if (e < 0 || !r->n)
		return e;
	inode_each(t, take_known, r);
	return find_others(r);
}

struct inode *promote_find_inode(const struct promote_find *r, size_t k)
{
	return find_candidate(r, r->files[k].id)->i;
}

void promote_find_release(struct promote_find *r)
{
	for (size_t k = 0; r->found && k < r->n; k++)
		if (r->found[k].i)
			inode_unref(r->tree, r->found[k].i);
	free(r->found);
	free(r->files);
}
