// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <errno.h>

#include "veneer/cleanup.h"
#include "veneer/hash.h"

static void blkmap_freep(struct blkmap **m)
{
	blkmap_free(*m);
}

static struct table_file *file_of(struct hlink *e)
{
	return container_of(e, struct table_file, link);
}

static void file_free(struct table_file *f)
{
	blkmap_free(f->map);
	blkmap_free(f->pend);
	blkmap_free(f->old);
	free(f);
}

static void file_drain(struct hlink *e, void *arg)
{
	(void)arg;
	file_free(file_of(e));
}

void table_init(struct table *t)
{
	*t = (struct table){ .next_id = 1 };
}

void table_release(struct table *t)
{
	htab_drain(&t->files, file_drain, NULL);
	htab_release(&t->files);
	table_init(t);
}

static struct table_file *table_find_any(const struct table *t, file_id_t id)
{
	for (struct hlink *e = htab_first(&t->files, hash_key(&id, sizeof(id), 0)); e;
	     e = htab_next(e))
		if (file_of(e)->id == id)
			return file_of(e);
	return NULL;
}

struct table_file *table_find(const struct table *t, file_id_t id)
{
	struct table_file *f = table_find_any(t, id);

	return f && !f->is_gone ? f : NULL;
}

bool table_knows(const struct table *t, file_id_t id)
{
	return table_find_any(t, id);
}

int table_insert(struct table *t, file_id_t id, struct blkmap *map)
{
	struct table_file *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->id = id;
	f->map = map;

	int r = htab_insert(&t->files, &f->link, hash_key(&id, sizeof(id), 0));

	if (r < 0) {
		free(f);
		return r;
	}
	t->count++;
	if (id >= t->next_id)
		t->next_id = id + 1;
	return 0;
}

void table_remove(struct table *t, struct table_file *f)
{
	htab_remove(&t->files, &f->link);
	t->count -= f->is_gone ? 0 : 1;
	file_free(f);
}

int table_map_add(struct blkmap *dst, const struct blkmap *src, const struct blkmap *without)
{
	uint64_t clip = blkmap_clip(src);
	blk_t end = clip / BLK_BYTES + (clip % BLK_BYTES != 0);
	blk_t n;

	for (blk_t at = 0; at < end; at += n) {
		bool is_own, is_without = false;

		n = blkmap_run(src, at, end - at, &is_own);
		if (!is_own)
			continue;
		if (without)
			n = blkmap_run(without, at, n, &is_without);
		if (!is_without && blkmap_set(dst, at, n) < 0)
			return -ENOMEM;
	}
	return 0;
}

struct blkmap *table_committed(const struct table_file *f)
{
	const struct blkmap *src = f->old ?: f->map;
	_cleanup_(blkmap_freep) struct blkmap *m = blkmap_new(blkmap_clip(src));

	if (!m || table_map_add(m, src, f->old ? NULL : f->pend) < 0)
		return NULL;
	return steal_ptr(&m);
}

static int apply_new(struct table *t, const struct record *rec, const char **ret_why)
{
	if (table_find_any(t, rec->id)) {
		*ret_why = "file id entered twice";
		return -EUCLEAN;
	}

	_cleanup_(blkmap_freep) struct blkmap *m = blkmap_new(rec->fresh.clip);

	if (!m)
		return -ENOMEM;

	int r = table_insert(t, rec->id, m);

	if (r == 0)
		(void)steal_ptr(&m);
	return r;
}

/* Only what was not own yet becomes pending: the rest may be committed. */
static int pend_add(struct table_file *f, blk_t blk, blk_t n)
{
	blk_t len;

	if (!f->pend)
		f->pend = blkmap_new(blkmap_clip(f->map));
	if (!f->pend)
		return -ENOMEM;
	for (blk_t end = blk + n; blk < end; blk += len) {
		bool is_own;

		len = blkmap_run(f->map, blk, end - blk, &is_own);
		if (!is_own && blkmap_set(f->pend, blk, len) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int apply_own_run(struct table_file *f, blk_t blk, blk_t n, bool is_committed)
{
	int r = f->old || is_committed ? 0 : pend_add(f, blk, n);

	return r ?: blkmap_set(f->map, blk, n);
}

static int apply_own_bits(struct table_file *f, uint64_t chunk, const uint64_t bits[2],
			  bool is_committed)
{
	blk_t base = chunk * CHUNK_BLKS;

	for (unsigned i = 0; i < CHUNK_BLKS && !f->old && !is_committed; i++) {
		if (!(bits[i / 64] >> (i % 64) & 1))
			continue;

		int r = pend_add(f, base + i, 1);

		if (r < 0)
			return r;
	}
	return blkmap_set_bits(f->map, chunk, bits);
}

static int apply_truncate(struct table_file *f, uint64_t size)
{
	if (size >= blkmap_clip(f->map))
		return 0;
	if (!f->old) {
		f->old = table_committed(f);
		if (!f->old)
			return -ENOMEM;
		blkmap_free(f->pend);
		f->pend = NULL;
	}
	blkmap_truncate(f->map, size);
	return 0;
}

static void apply_commit(struct table_file *f)
{
	blkmap_free(f->pend);
	blkmap_free(f->old);
	f->pend = f->old = NULL;
}

static int commit_one(void *arg, struct table_file *f)
{
	(void)arg;
	if (!f->is_gone)
		apply_commit(f);
	return 0;
}

static int apply_session(struct table *t, const struct record *rec)
{
	if (rec->type == FORMAT_REC_CLEAN) {
		table_sweep(t, NULL, NULL);
		table_each(t, commit_one, NULL);
		t->in_session = false;
		return 0;
	}

	int r = t->in_session && t->epoch != rec->open.epoch ? table_revert(t) : 0;

	if (r < 0)
		return r;
	t->epoch = rec->open.epoch;
	t->in_session = true;
	return 0;
}

int table_apply(struct table *t, const struct record *rec, const char **ret_why)
{
	if (rec->type == FORMAT_REC_OPEN || rec->type == FORMAT_REC_CLEAN)
		return apply_session(t, rec);
	if (rec->type == FORMAT_REC_NEW)
		return apply_new(t, rec, ret_why);

	struct table_file *f = table_find(t, rec->id);

	if (!f) {
		*ret_why = "file id unknown";
		return -EUCLEAN;
	}
	switch (rec->type) {
	case FORMAT_REC_OWN_RUN:
		return apply_own_run(f, rec->run.blk, rec->run.n, t->is_loading);
	case FORMAT_REC_OWN_BITS:
		return apply_own_bits(f, rec->bits.chunk, rec->bits.bits, t->is_loading);
	case FORMAT_REC_TRUNCATE:
		return apply_truncate(f, rec->truncate.size);
	case FORMAT_REC_COMMIT:
		apply_commit(f);
		return 0;
	case FORMAT_REC_GONE:
		f->is_gone = true;
		t->count--;
		return 0;
	default:
		*ret_why = "record type not expected";
		return -EUCLEAN;
	}
}

static int revert_one(void *arg, struct table_file *f)
{
	struct table *t = arg;

	if (f->pend || f->old) {
		struct blkmap *m = table_committed(f);

		if (!m)
			return -ENOMEM;
		blkmap_free(f->map);
		f->map = m;
		apply_commit(f);
	}
	t->count += f->is_gone ? 1 : 0;
	f->is_gone = false;
	return 0;
}

int table_revert(struct table *t)
{
	int r = table_each(t, revert_one, t);

	if (r < 0)
		return r;
	/* Files may carry ids whose records never reached the disk: do not give them out again. */
	if (t->lost_end == 0)
		t->lost_first = t->next_id;
	t->next_id += FORMAT_LOST_IDS;
	t->lost_end = t->next_id;
	t->in_session = false;
	return 0;
}

int table_each(const struct table *t, int (*fn)(void *arg, struct table_file *f), void *arg)
{
	for (size_t i = 0; i < t->files.nbuckets; i++) {
		for (struct hlink *e = t->files.buckets[i]; e; e = e->next) {
			int r = fn(arg, file_of(e));

			if (r)
				return r;
		}
	}
	return 0;
}

void table_sweep(struct table *t, bool (*fn)(void *arg, const struct table_file *f), void *arg)
{
	for (size_t i = 0; i < t->files.nbuckets; i++) {
		struct hlink *next;

		for (struct hlink *e = t->files.buckets[i]; e; e = next) {
			struct table_file *f = file_of(e);

			next = e->next;
			if (f->is_gone && (!fn || fn(arg, f)))
				table_remove(t, f);
		}
	}
}
