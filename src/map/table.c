// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/table.h"

#include <errno.h>

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"

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
	blkmap_free(f->cut);
	blkmap_free(f->zero);
	free(f);
}

static void file_drain(struct hlink *e, void *arg)
{
	(void)arg;
	file_free(file_of(e));
}

static size_t file_bytes(const struct table_file *f)
{
	return sizeof(*f) + blkmap_bytes(f->map) + (f->pend ? blkmap_bytes(f->pend) : 0) +
	       (f->cut ? blkmap_bytes(f->cut) : 0) + (f->zero ? blkmap_bytes(f->zero) : 0);
}

static void dirty_add(struct table *t, struct table_file *f)
{
	if (f->is_dirty)
		return;
	f->is_dirty = true;
	f->dirty_prev = NULL;
	f->dirty_next = t->dirty;
	if (t->dirty)
		t->dirty->dirty_prev = f;
	t->dirty = f;
}

static void dirty_del(struct table *t, struct table_file *f)
{
	if (!f->is_dirty)
		return;
	f->is_dirty = false;
	if (f->dirty_next)
		f->dirty_next->dirty_prev = f->dirty_prev;
	if (f->dirty_prev)
		f->dirty_prev->dirty_next = f->dirty_next;
	else
		t->dirty = f->dirty_next;
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

struct table_file *table_find_any(const struct table *t, file_id_t id)
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
	t->bytes += file_bytes(f);
	if (id >= t->next_id)
		t->next_id = id + 1;
	INVARIANTS(table_check_invariants(t, f));
	return 0;
}

void table_remove(struct table *t, struct table_file *f)
{
	htab_remove(&t->files, &f->link);
	dirty_del(t, f);
	t->bytes -= file_bytes(f);
	t->count -= f->is_gone ? 0 : 1;
	file_free(f);
	INVARIANTS(table_check_invariants(t, NULL));
}

static blk_t blk_end(const struct blkmap *m)
{
	uint64_t clip = blkmap_clip(m);

	return clip / BLK_BYTES + (clip % BLK_BYTES != 0);
}

uint64_t table_committed_clip(const struct table_file *f)
{
	return blkmap_clip(f->cut ?: f->map);
}

struct blkmap *table_committed(const struct table_file *f)
{
	_cleanup_(blkmap_freep) struct blkmap *m = blkmap_new(table_committed_clip(f));
	blk_t cut_at = blk_end(f->map);

	if (!m || blkmap_add(m, 0, cut_at, f->map, f->pend) < 0)
		return NULL;
	if (f->cut && blkmap_add(m, cut_at, blk_end(f->cut), f->cut, NULL) < 0)
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

static int want_map(struct blkmap **m, uint64_t clip)
{
	if (!*m)
		*m = blkmap_new(clip);
	return *m ? 0 : -ENOMEM;
}

int table_own_committed(struct table *t, struct table_file *f, const struct blkmap *m)
{
	size_t before = file_bytes(f);
	int r = want_map(&f->zero, table_committed_clip(f));

	r = r ?: blkmap_add(f->zero, 0, blk_end(m), m, f->map);
	r = r ?: blkmap_add(f->map, 0, blk_end(m), m, NULL);
	t->bytes += file_bytes(f) - before;
	return r;
}

int table_doubt_zeros(struct table *t, struct table_file *f)
{
	size_t before = file_bytes(f);
	int r = want_map(&f->zero, table_committed_clip(f));

	r = r ?: blkmap_add(f->zero, 0, blk_end(f->map), f->map, NULL);
	t->bytes += file_bytes(f) - before;
	return r;
}

/* Add to dst the blocks that are own in both. */
static int add_common(struct blkmap *dst, const struct blkmap *a, const struct blkmap *b)
{
	_cleanup_(blkmap_freep) struct blkmap *others = blkmap_new(blkmap_clip(a));
	blk_t end = blk_end(b);

	if (!others)
		return -ENOMEM;
	return blkmap_add(others, 0, end, a, b) ?: blkmap_add(dst, 0, end, a, others);
}

int table_zeros_in(const struct table_file *f, const struct blkmap *m, struct blkmap **ret)
{
	*ret = NULL;
	if (!f->zero)
		return 0;

	_cleanup_(blkmap_freep) struct blkmap *both = blkmap_new(blkmap_clip(f->zero));
	int r = both ? add_common(both, f->zero, m) : -ENOMEM;

	if (r == 0 && blkmap_count(both))
		*ret = steal_ptr(&both);
	return r;
}

int table_trim_zeros(struct table *t, struct table_file *f)
{
	size_t before = file_bytes(f);
	struct blkmap *kept;
	int r = table_zeros_in(f, f->map, &kept);

	if (r < 0)
		return r;
	blkmap_free(f->zero);
	f->zero = kept;
	t->bytes += file_bytes(f) - before;
	return 0;
}

/* Only blocks that were not own yet become pending: the rest may be committed. */
static int apply_own_run(struct table_file *f, blk_t blk, blk_t n, bool is_committed)
{
	int r = blkmap_reserve(f->map, blk, n);

	if (r == 0 && !is_committed)
		r = want_map(&f->pend, blkmap_clip(f->map))
			    ?: blkmap_add(f->pend, blk, blk + n, NULL, f->map);
	return r ?: blkmap_set(f->map, blk, n);
}

static int apply_own_bits(struct table_file *f, uint64_t chunk, const uint64_t bits[2],
			  bool is_committed)
{
	uint64_t fresh[2];
	int r = blkmap_reserve(f->map, chunk * CHUNK_BLKS, 1);

	blkmap_bits(f->map, chunk, fresh);
	for (unsigned w = 0; w < 2; w++)
		fresh[w] = bits[w] & ~fresh[w];
	if (r == 0 && !is_committed && (fresh[0] || fresh[1]))
		r = want_map(&f->pend, blkmap_clip(f->map))
			    ?: blkmap_set_bits(f->pend, chunk, fresh);
	return r ?: blkmap_set_bits(f->map, chunk, bits);
}

/* Past the clip nothing is own; blocks that were own before a cut are not the zeros of now. */
static int apply_zero_run(struct table_file *f, blk_t blk, blk_t n, bool is_committed)
{
	blk_t end = blk_end(f->map), nzero = blk >= end ? 0 : n > end - blk ? end - blk : n;
	int r = want_map(&f->zero, table_committed_clip(f)) ?: blkmap_reserve(f->zero, blk, nzero);

	r = r ?: apply_own_run(f, blk, n, is_committed);
	return r ?: blkmap_set(f->zero, blk, nzero);
}

static int apply_zero_bits(struct table_file *f, uint64_t chunk, const uint64_t bits[2],
			   bool is_committed)
{
	blk_t base = chunk * CHUNK_BLKS, end = blk_end(f->map);
	uint64_t zeros[2] = { bits[0], bits[1] };
	int r = want_map(&f->zero, table_committed_clip(f)) ?: blkmap_reserve(f->zero, base, 1);

	for (unsigned i = end > base ? (unsigned)(end - base) : 0;
	     end < base + CHUNK_BLKS && i < CHUNK_BLKS; i++)
		zeros[i / 64] &= ~(1ull << (i % 64));
	r = r ?: apply_own_bits(f, chunk, bits, is_committed);
	return r ?: blkmap_set_bits(f->zero, chunk, zeros);
}

/* Truncate. Blocks that are taken from map are freed there, so a log of truncations costs no more
 * than the blocks it made own. */
static int apply_truncate(struct table_file *f, uint64_t size)
{
	blk_t first = size / BLK_BYTES + (size % BLK_BYTES != 0);

	if (size >= blkmap_clip(f->map))
		return 0;

	int r = want_map(&f->cut, blkmap_clip(f->map))
			?: blkmap_add(f->cut, first, blk_end(f->map), f->map, f->pend);

	if (r < 0)
		return r;
	blkmap_truncate(f->map, size);
	if (f->pend)
		blkmap_truncate(f->pend, size);
	return 0;
}

static void apply_commit(struct table_file *f)
{
	blkmap_free(f->pend);
	blkmap_free(f->cut);
	f->pend = f->cut = NULL;
	if (f->zero)
		blkmap_truncate(f->zero, blkmap_clip(f->map));
}

/* CLEAN: all is committed, and removed blocks are gone for good. */
static void apply_clean(struct table *t)
{
	table_sweep(t, NULL, NULL);
	while (t->dirty) {
		struct table_file *f = t->dirty;
		size_t before = file_bytes(f);

		apply_commit(f);
		t->bytes -= before - file_bytes(f);
		dirty_del(t, f);
	}
	t->in_session = false;
}

static int apply_session(struct table *t, const struct record *rec)
{
	if (rec->type == FORMAT_REC_CLEAN) {
		apply_clean(t);
		return 0;
	}

	int r = t->in_session && t->epoch != rec->open.epoch ? table_revert(t, true) : 0;

	if (r < 0)
		return r;
	t->epoch = rec->open.epoch;
	t->in_session = true;
	return 0;
}

static int apply_to_file(struct table *t, struct table_file *f, const struct record *rec,
			 const char **ret_why)
{
	switch (rec->type) {
	case FORMAT_REC_OWN_RUN:
		return apply_own_run(f, rec->run.blk, rec->run.n, t->is_loading);
	case FORMAT_REC_OWN_BITS:
		return apply_own_bits(f, rec->bits.chunk, rec->bits.bits, t->is_loading);
	case FORMAT_REC_ZERO_RUN:
		return apply_zero_run(f, rec->run.blk, rec->run.n, t->is_loading);
	case FORMAT_REC_ZERO_BITS:
		return apply_zero_bits(f, rec->bits.chunk, rec->bits.bits, t->is_loading);
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

static int apply_change(struct table *t, const struct record *rec, const char **ret_why)
{
	struct table_file *f = table_find(t, rec->id);

	if (!f) {
		*ret_why = "file id unknown";
		return -EUCLEAN;
	}

	size_t before = file_bytes(f);
	int r = apply_to_file(t, f, rec, ret_why);

	t->bytes += file_bytes(f) - before;
	if (f->pend || f->cut || f->is_gone)
		dirty_add(t, f);
	else
		dirty_del(t, f);
	return r;
}

bool table_fits(const struct table *t, uint64_t record_bytes)
{
	return t->bytes <= TABLE_BYTES_BASE ||
	       (t->bytes - TABLE_BYTES_BASE) / TABLE_BYTES_PER_BYTE <= record_bytes;
}

static int check_limits(struct table *t, const struct record *rec, const char **ret_why)
{
	t->nrecords++;
	t->record_bytes += record_len(rec->type);
	if (t->is_trusted)
		return 0;
	if (!table_fits(t, t->record_bytes)) {
		*ret_why = "more memory wanted than a map of this length may";
		return -EUCLEAN;
	}
	if (t->steps > TABLE_STEPS_BASE &&
	    (t->steps - TABLE_STEPS_BASE) / TABLE_STEPS_PER_RECORD > t->nrecords) {
		*ret_why = "more work wanted than so many records may";
		return -EUCLEAN;
	}
	return 0;
}

int table_apply(struct table *t, const struct record *rec, const char **ret_why)
{
	int r;

	if (rec->type == FORMAT_REC_OPEN || rec->type == FORMAT_REC_CLEAN)
		r = apply_session(t, rec);
	else if (rec->type == FORMAT_REC_NEW)
		r = apply_new(t, rec, ret_why);
	else
		r = apply_change(t, rec, ret_why);
	INVARIANTS(table_check_invariants(t, table_find_any(t, rec->id)));
	return r ?: check_limits(t, rec, ret_why);
}

int table_revert_file(struct table *t, struct table_file *f)
{
	size_t before = file_bytes(f);

	t->steps += before / sizeof(uint64_t[2]);
	if (f->pend || f->cut) {
		struct blkmap *m = table_committed(f);

		if (!m)
			return -ENOMEM;
		blkmap_free(f->map);
		f->map = m;
		apply_commit(f);
	}
	t->bytes += file_bytes(f) - before;
	t->count += f->is_gone ? 1 : 0;
	f->is_gone = false;
	dirty_del(t, f);
	INVARIANTS(table_check_invariants(t, f));
	return 0;
}

int table_revert(struct table *t, bool trims)
{
	while (t->dirty) {
		struct table_file *f = t->dirty;
		int r = table_revert_file(t, f);

		r = r ?: trims ? table_trim_zeros(t, f) : 0;
		if (r < 0)
			return r;
	}
	table_lose_ids(t);
	return 0;
}

void table_lose_ids(struct table *t)
{
	/* Files may carry ids whose records never reached the disk: do not give them out again. */
	if (t->lost_end == 0)
		t->lost_first = t->next_id;
	/* A map that begins near the end of all numbers is forged, and ends there. */
	t->next_id += t->next_id < FORMAT_ID_END - FORMAT_LOST_IDS ? FORMAT_LOST_IDS
								   : FORMAT_ID_END - t->next_id;
	t->lost_end = t->next_id;
	t->in_session = false;
}

/* Committed blocks before end that neither have data nor may be zeros are lost. 1, 0 or -ENOMEM. */
static int lacks_committed(const struct table_file *f, const struct blkmap *committed,
			   const struct blkmap *m, blk_t end)
{
	_cleanup_(blkmap_freep) struct blkmap *known = blkmap_new(blkmap_clip(m));
	_cleanup_(blkmap_freep) struct blkmap *lost = blkmap_new(blkmap_clip(m));
	int r = known && lost ? 0 : -ENOMEM;

	r = r ?: blkmap_add(known, 0, end, m, NULL);
	r = r ?: f->zero ? blkmap_add(known, 0, end, f->zero, NULL) : 0;
	r = r ?: blkmap_add(lost, 0, end, committed, known);
	return r ?: blkmap_count(lost) > 0;
}

/* Blocks with data, and zeros that a record tells of. */
static int add_proven(struct blkmap *own, const struct table_file *f, const struct blkmap *m)
{
	int r = blkmap_add(own, 0, blk_end(own), m, NULL);

	return r ?: f->zero ? add_common(own, f->zero, f->map) : 0;
}

int table_settle_copy(struct table *t, struct table_file *f, const struct blkmap *m, uint64_t size,
		      bool is_ordered)
{
	/* Before a file that was cut grows the cut is committed: one that is longer is of before
	 * the cut. */
	const bool is_uncut = f->cut && (!is_ordered || size > blkmap_clip(f->map));
	_cleanup_(blkmap_freep) struct blkmap *committed = table_committed(f);
	_cleanup_(blkmap_freep) struct blkmap *own =
		blkmap_new(blkmap_clip(is_uncut ? f->cut : f->map));
	blk_t seen = size / BLK_BYTES + (size % BLK_BYTES != 0);
	size_t before = file_bytes(f);
	int r = committed && own ? 0 : -ENOMEM;

	r = r ?: lacks_committed(f, committed, m, seen < blk_end(own) ? seen : blk_end(own));
	if (r)
		return r < 0 ? r : 0;
	r = blkmap_add(own, 0, blk_end(own), committed, NULL);
	r = r ?: is_ordered ? add_proven(own, f, m) : 0;
	if (r < 0)
		return r;
	blkmap_free(f->map);
	f->map = steal_ptr(&own);
	apply_commit(f);
	t->bytes += file_bytes(f) - before;
	t->count += f->is_gone ? 1 : 0;
	f->is_gone = false;
	dirty_del(t, f);
	r = table_trim_zeros(t, f);
	INVARIANTS(table_check_invariants(t, f));
	return r < 0 ? r : 1;
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
	struct table_file *next;

	for (struct table_file *f = t->dirty; f; f = next) {
		next = f->dirty_next;
		if (f->is_gone && (!fn || fn(arg, f)))
			table_remove(t, f);
	}
}

/* ---- invariants ---- */

#define SMALL_FILE_BYTES \
	(INVARIANTS_MAX * sizeof(void *) * 8) /* of all its maps: nodes of a tree */

/* Of the first chunks: all of a huge file may be own. */
static bool is_part(const struct blkmap *part, const struct blkmap *of)
{
	uint64_t chunk = 0, bits[2], all[2];

	for (unsigned k = 0; k < INVARIANTS_MAX && blkmap_next_chunk(part, &chunk, bits);
	     k++, chunk++) {
		blkmap_bits(of, chunk, all);
		if (bits[0] & ~all[0] || bits[1] & ~all[1])
			return false;
	}
	return true;
}

static bool is_empty_before(const struct blkmap *m, blk_t end)
{
	bool is_own;

	return !end || (blkmap_run(m, 0, end, &is_own) == end && !is_own);
}

static const char *file_check(const struct table *t, const struct table_file *f)
{
	if (f->id >= t->next_id)
		return "table: the next id is above all others";
	if (f->is_dirty != (f->pend || f->cut || f->is_gone))
		return "table: a file is dirty if a boot would change it";
	if (f->pend && blkmap_clip(f->pend) != blkmap_clip(f->map))
		return "table: pend has the clip of map";
	if (f->zero && blkmap_clip(f->zero) != table_committed_clip(f))
		return "table: zero has the clip of the committed state";
	if (file_bytes(f) > SMALL_FILE_BYTES)
		return NULL;
	if (f->pend && !is_part(f->pend, f->map))
		return "table: pend is a part of map";
	if (f->cut && !is_empty_before(f->cut, blk_end(f->map)))
		return "table: cut begins at the clip of map";
	return NULL;
}

struct tally {
	size_t count, bytes, ndirty;
};

static int file_add(void *arg, struct table_file *f)
{
	struct tally *sum = arg;

	sum->count += !f->is_gone;
	sum->bytes += file_bytes(f);
	sum->ndirty += f->is_dirty;
	return 0;
}

static const char *all_check(const struct table *t)
{
	const struct table_file *before = NULL;
	struct tally sum = { 0 };

	table_each(t, file_add, &sum);
	if (sum.count != t->count || sum.bytes != t->bytes)
		return "table: count and bytes are the sums over its files";
	for (const struct table_file *f = t->dirty; f && sum.ndirty; f = f->dirty_next) {
		if (!f->is_dirty || f->dirty_prev != before)
			return "table: the list of dirty files is linked both ways";
		before = f;
		sum.ndirty--;
	}
	return sum.ndirty || (before && before->dirty_next)
		       ? "table: each dirty file is listed once"
		       : NULL;
}

const char *table_check_invariants(const struct table *t, const struct table_file *f)
{
	const char *broken = f ? file_check(t, f) : NULL;

	if (!broken && (t->lost_first > t->lost_end || t->lost_end > t->next_id))
		broken = "table: ids were lost below the next one";
	return broken || t->files.count > INVARIANTS_MAX ? broken : all_check(t);
}
