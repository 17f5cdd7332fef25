// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "veneer/map/table.h"

#define MIB (1u << 20)

static int apply(struct table *t, struct record rec)
{
	const char *why = NULL;
	int r = table_apply(t, &rec, &why);

	if (r == -EUCLEAN)
		assert_non_null(why);
	return r;
}

static struct record of(enum format_record_type type, file_id_t id)
{
	return (struct record){ .type = type, .id = id };
}

static struct record fresh(file_id_t id)
{
	return (struct record){ .type = FORMAT_REC_NEW, .id = id, .fresh = { MIB } };
}

static struct record own(file_id_t id, blk_t blk)
{
	return (struct record){ .type = FORMAT_REC_OWN_RUN, .id = id, .run = { blk, 1 } };
}

static struct record boot(uint64_t epoch)
{
	return (struct record){ .type = FORMAT_REC_OPEN, .open = { epoch, 1 } };
}

static void test_table__revert_goes_back_to_the_last_commit(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_COMMIT, 1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, own(1, 4)), 0);
	assert_int_equal(apply(&t, (struct record){ .type = FORMAT_REC_TRUNCATE, .id = 1 }), 0);
	assert_true(blkmap_is_complete(table_find(&t, 1)->map));
	assert_int_equal(table_revert(&t, true), 0);
	assert_int_equal(blkmap_clip(table_find(&t, 1)->map), MIB);
	assert_true(blkmap_is_own(table_find(&t, 1)->map, 3));
	assert_false(blkmap_is_own(table_find(&t, 1)->map, 4));
	table_release(&t);
}

static void test_table__gone_file_comes_back_only_by_revert(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, fresh(2)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), 0);
	assert_null(table_find(&t, 1));
	assert_true(table_knows(&t, 1));
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), -EUCLEAN);
	assert_int_equal(apply(&t, fresh(1)), -EUCLEAN);
	assert_int_equal(t.count, 1);
	assert_int_equal(table_revert(&t, true), 0);
	assert_int_equal(t.count, 2);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
	assert_false(table_knows(&t, 1));
	table_release(&t);
}

static void test_table__clean_close_commits_everything(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
	assert_int_equal(apply(&t, boot(2)), 0);
	assert_int_equal(t.lost_end, 0);
	assert_int_equal(apply(&t, own(1, 4)), 0);
	assert_int_equal(apply(&t, boot(3)), 0);
	assert_true(blkmap_is_own(table_find(&t, 1)->map, 3));
	assert_false(blkmap_is_own(table_find(&t, 1)->map, 4));
	assert_int_equal(t.lost_first, 2);
	assert_int_equal(t.next_id, 2 + FORMAT_LOST_IDS);
	table_release(&t);
}

static void test_table__lost_ids_end_where_all_ids_end(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	t.next_id = FORMAT_ID_END - FORMAT_LOST_IDS;
	for (uint64_t n = 1; n < 4; n++) {
		assert_int_equal(apply(&t, boot(n)), 0);
		assert_int_equal(table_revert(&t, true), 0);
		assert_int_equal(t.next_id, FORMAT_ID_END);
		assert_int_equal(t.lost_first, FORMAT_ID_END - FORMAT_LOST_IDS);
		assert_int_equal(t.lost_end, FORMAT_ID_END);
	}
	table_release(&t);
}

static void test_table__unknown_files_are_damage(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, own(1, 1)), -EUCLEAN);
	assert_int_equal(apply(&t, of(FORMAT_REC_COMMIT, 1)), -EUCLEAN);
	table_release(&t);
}

/* A file as two byte arrays. */
#define MODEL_FILES 4u
#define MODEL_BLKS  400u
struct model {
	struct model_state {
		uint64_t clip;
		uint8_t own[MODEL_BLKS];
	} now[MODEL_FILES], committed[MODEL_FILES];
	uint8_t zero[MODEL_FILES][MODEL_BLKS]; /* since it became own */
};

static void model_cut(struct model_state *s, uint64_t size)
{
	s->clip = size < s->clip ? size : s->clip;
	for (blk_t b = 0; b < MODEL_BLKS; b++)
		if (b * BLK_BYTES >= s->clip)
			s->own[b] = 0;
}

static void model_own(struct model_state *s, blk_t blk)
{
	if (blk < MODEL_BLKS && blk * BLK_BYTES < s->clip)
		s->own[blk] = 1;
}

static void model_zero(struct model *m, file_id_t id, blk_t blk)
{
	struct model_state *s = &m->now[id - 1];

	model_own(s, blk);
	if (blk < MODEL_BLKS && s->own[blk])
		m->zero[id - 1][blk] = 1;
}

/* After a commit (of -1: after going back to one) what is said is said of own blocks. */
static void model_settle(struct model *m, file_id_t id)
{
	for (blk_t b = 0; b < MODEL_BLKS; b++)
		m->zero[id - 1][b] &= m->now[id - 1].own[b];
}

static void model_step(struct table *t, struct model *m)
{
	file_id_t id = 1 + (file_id_t)rand() % MODEL_FILES;
	struct model_state *s = &m->now[id - 1];
	blk_t blk = (blk_t)rand() % MODEL_BLKS, n = 1 + (blk_t)rand() % (rand() % 3 ? 5 : 300);
	struct record rec = { .type = FORMAT_REC_OWN_RUN, .id = id };

	switch (rand() % 10) {
	case 0:
		assert_int_equal(apply(t, of(FORMAT_REC_COMMIT, id)), 0);
		m->committed[id - 1] = *s;
		model_settle(m, id);
		return;
	case 3:
		rec.type = FORMAT_REC_ZERO_RUN;
		rec.run.blk = blk;
		rec.run.n = n;
		assert_int_equal(apply(t, rec), 0);
		for (blk_t b = blk; b < blk + n; b++)
			model_zero(m, id, b);
		return;
	case 1:
		rec.type = FORMAT_REC_TRUNCATE;
		rec.truncate.size = s->clip - (uint64_t)rand() % (s->clip / 8 + 1);
		assert_int_equal(apply(t, rec), 0);
		model_cut(s, rec.truncate.size);
		return;
	case 2:
	case 4:
		rec.type = blk % 2 ? FORMAT_REC_OWN_BITS : FORMAT_REC_ZERO_BITS;
		rec.bits.chunk = blk / CHUNK_BLKS;
		for (unsigned i = 0; i < CHUNK_BLKS; i++) {
			if (rand() % 3 && i)
				continue;
			rec.bits.bits[i / 64] |= 1ull << (i % 64);
			if (rec.type == FORMAT_REC_OWN_BITS)
				model_own(s, rec.bits.chunk * CHUNK_BLKS + i);
			else
				model_zero(m, id, rec.bits.chunk * CHUNK_BLKS + i);
		}
		assert_int_equal(apply(t, rec), 0);
		return;
	default:
		rec.run.blk = blk;
		rec.run.n = n;
		assert_int_equal(apply(t, rec), 0);
		for (blk_t b = blk; b < blk + n; b++)
			model_own(s, b);
	}
}

static void check_model(const struct blkmap *m, const struct model_state *s)
{
	assert_int_equal(blkmap_clip(m), s->clip);
	for (blk_t b = 0; b < MODEL_BLKS; b++)
		assert_int_equal(blkmap_is_own(m, b), b * BLK_BYTES >= s->clip || s->own[b]);
}

static void check_zeros(const struct table_file *f, const struct model_state *s,
			const uint8_t *zero)
{
	struct blkmap *m;

	assert_int_equal(table_zeros_in(f, f->map, &m), 0);
	for (blk_t b = 0; b < MODEL_BLKS && b * BLK_BYTES < s->clip; b++)
		assert_int_equal(m && blkmap_is_own(m, b), s->own[b] && zero[b]);
	blkmap_free(m);
}

static void check_tables(struct table *t, const struct model *m)
{
	size_t bytes = 0;

	for (file_id_t id = 1; id <= MODEL_FILES; id++) {
		const struct table_file *f = table_find(t, id);
		struct blkmap *committed = table_committed(f);

		check_model(f->map, &m->now[id - 1]);
		check_zeros(f, &m->now[id - 1], m->zero[id - 1]);
		check_model(committed, &m->committed[id - 1]);
		blkmap_free(committed);
		bytes += sizeof(*f) + blkmap_bytes(f->map);
		bytes += f->pend ? blkmap_bytes(f->pend) : 0;
		bytes += f->cut ? blkmap_bytes(f->cut) : 0;
		bytes += f->zero ? blkmap_bytes(f->zero) : 0;
	}
	assert_int_equal(t->bytes, bytes);
}

static void test_table__agrees_with_byte_arrays(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 300; round++) {
		static struct model m;
		struct table t;
		uint64_t epoch = 1;

		table_init(&t);
		memset(&m, 0, sizeof(m));
		assert_int_equal(apply(&t, boot(epoch)), 0);
		for (file_id_t id = 1; id <= MODEL_FILES; id++) {
			struct record rec = of(FORMAT_REC_NEW, id);

			rec.fresh.clip = MODEL_BLKS * BLK_BYTES - id;
			m.now[id - 1].clip = m.committed[id - 1].clip = rec.fresh.clip;
			assert_int_equal(apply(&t, rec), 0);
		}
		for (int i = 0; i < 120; i++) {
			model_step(&t, &m);
			if (i % 40 == 20) {
				check_tables(&t, &m);
				assert_int_equal(apply(&t, boot(++epoch)), 0);
				memcpy(m.now, m.committed, sizeof(m.now));
				for (file_id_t id = 1; id <= MODEL_FILES; id++)
					model_settle(&m, id);
			}
			if (i % 40 == 39) {
				assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
				assert_null(t.dirty);
				memcpy(m.committed, m.now, sizeof(m.now));
				for (file_id_t id = 1; id <= MODEL_FILES; id++)
					model_settle(&m, id);
				assert_int_equal(apply(&t, boot(++epoch)), 0);
			}
			if (i % 10 == 0)
				check_tables(&t, &m);
		}
		check_tables(&t, &m);
		table_release(&t);
	}
}

/* Blocks 1 and 2 synced, 2 as zeros; 3 and 4 not synced, 4 as zeros. */
static void start_copy(struct table *t)
{
	table_init(t);
	assert_int_equal(apply(t, boot(1)), 0);
	assert_int_equal(apply(t, fresh(1)), 0);
	assert_int_equal(apply(t, own(1, 1)), 0);
	assert_int_equal(
		apply(t, (struct record){ .type = FORMAT_REC_ZERO_RUN, .id = 1, .run = { 2, 1 } }),
		0);
	assert_int_equal(apply(t, of(FORMAT_REC_COMMIT, 1)), 0);
	assert_int_equal(apply(t, own(1, 3)), 0);
	assert_int_equal(
		apply(t, (struct record){ .type = FORMAT_REC_ZERO_RUN, .id = 1, .run = { 4, 1 } }),
		0);
}

/* has: bit b for block b, that it does not read as zeros. */
static int settle_as(struct table *t, unsigned has, uint64_t size, bool is_ordered)
{
	struct table_file *f = table_find_any(t, 1);
	struct blkmap *m = blkmap_new(table_committed_clip(f));
	int r;

	for (blk_t b = 0; b < 32; b++)
		if (has >> b & 1)
			assert_int_equal(blkmap_set(m, b, 1), 0);
	r = table_settle_copy(t, f, m, size, is_ordered);
	blkmap_free(m);
	if (r == 1)
		assert_int_equal(t->bytes, sizeof(*f) + blkmap_bytes(f->map) +
						   (f->zero ? blkmap_bytes(f->zero) : 0));
	return r;
}

static int settle(struct table *t, unsigned has, uint64_t size)
{
	return settle_as(t, has, size, true);
}

static unsigned owned(const struct table *t)
{
	unsigned found = 0;

	for (blk_t b = 0; b < 32; b++)
		found |= (unsigned)blkmap_is_own(table_find(t, 1)->map, b) << b;
	return found;
}

static void test_table__copy_is_what_its_bytes_prove(void **state)
{
	(void)state;
	static const struct {
		unsigned has, owned;
	} rows[] = {
		{ 1 << 1 | 1 << 3, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 }, /* all that was written */
		{ 1 << 1, 1 << 1 | 1 << 2 | 1 << 4 }, /* what was not synced is lost */
		{ 1 << 1 | 1 << 9, 1 << 1 | 1 << 2 | 1 << 4 | 1 << 9 }, /* its record is */
		{ 1 << 1 | 1 << 2 | 1 << 4,
		  1 << 1 | 1 << 2 | 1 << 4 }, /* zeros that were written over */
	};
	struct table t;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		start_copy(&t);
		assert_int_equal(settle(&t, rows[k].has, MIB), 1);
		assert_int_equal(owned(&t), rows[k].owned);
		assert_null(t.dirty);
		table_release(&t);
	}
}

static void test_table__copy_that_lacks_what_was_synced_proves_nothing(void **state)
{
	(void)state;
	struct table t;

	start_copy(&t);
	assert_int_equal(settle(&t, 1 << 3, MIB), 0);
	/* The block is behind the end, where it cannot be seen. */
	assert_int_equal(settle(&t, 0, BLK_BYTES), 1);
	assert_int_equal(owned(&t) & 1 << 1, 1 << 1);
	table_release(&t);
}

/* A file that grew after it was cut was committed between. */
static void test_table__copy_of_a_cut_file_is_told_by_its_size(void **state)
{
	(void)state;
	struct record cut = { .type = FORMAT_REC_TRUNCATE,
			      .id = 1,
			      .truncate = { 2 * BLK_BYTES + 5 } };
	struct table t;

	for (int is_cut = 0; is_cut < 2; is_cut++) {
		start_copy(&t);
		assert_int_equal(apply(&t, cut), 0);
		assert_int_equal(settle(&t, 1 << 1, is_cut ? cut.truncate.size : MIB), 1);
		assert_int_equal(blkmap_clip(table_find(&t, 1)->map),
				 is_cut ? cut.truncate.size : MIB);
		assert_true(blkmap_is_own(table_find(&t, 1)->map, 2));
		table_release(&t);
	}
}

static void test_table__copy_without_proof_is_as_committed(void **state)
{
	(void)state;
	struct table t;

	start_copy(&t);
	assert_int_equal(apply(&t, (struct record){ .type = FORMAT_REC_TRUNCATE, .id = 1 }), 0);
	assert_int_equal(settle_as(&t, 1 << 3, 0, false), 1);
	assert_int_equal(owned(&t), 1 << 1 | 1 << 2);
	assert_int_equal(settle_as(&t, 1 << 3, MIB, false), 0);
	table_release(&t);
}

static void test_table__copy_brings_gone_files_back(void **state)
{
	(void)state;
	struct table t;

	start_copy(&t);
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), 0);
	assert_int_equal(t.count, 0);
	assert_int_equal(settle(&t, 1 << 1, MIB), 1);
	assert_int_equal(t.count, 1);
	table_release(&t);
}

static struct record huge(file_id_t id)
{
	return (struct record){ .type = FORMAT_REC_NEW, .id = id, .fresh = { FORMAT_SIZE_MAX } };
}

/* One record wants a path of its own through the whole height of the largest file. */
static void test_table__scattered_blocks_are_refused_before_they_fill_the_memory(void **state)
{
	(void)state;
	struct table t;
	uint64_t n = 0;
	int r = 0;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, huge(1)), 0);
	for (; r == 0 && n < 10000000; n++) {
		uint64_t chunk = n * UINT64_C(0x9e3779b97f4a7c15) >> 20;

		r = apply(&t, (struct record){ .type = FORMAT_REC_OWN_BITS,
					       .id = 1,
					       .bits = { chunk, { 1, 0 } } });
	}
	assert_int_equal(r, -EUCLEAN);
	assert_true(t.bytes < TABLE_BYTES_BASE + n * 48 * TABLE_BYTES_PER_BYTE + (1 << 16));
	table_release(&t);
}

static void own_every_other_chunk(struct table *t, uint64_t nchunk)
{
	for (uint64_t i = 0; i < nchunk; i++)
		assert_int_equal(apply(t, (struct record){ .type = FORMAT_REC_OWN_BITS,
							   .id = 1,
							   .bits = { 2 * i, { 5, 0 } } }),
				 0);
	assert_int_equal(apply(t, of(FORMAT_REC_COMMIT, 1)), 0);
}

/* CPU time that a mount may be kept from its work; a visit of all nodes by each record takes
 * minutes. */
#define CPU_S_MAX 20

static void test_table__truncations_and_commits_do_not_cost_the_whole_map(void **state)
{
	(void)state;
	struct table t;
	clock_t start = clock();
	uint64_t size = FORMAT_SIZE_MAX;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, huge(1)), 0);
	own_every_other_chunk(&t, 20000);
	for (int i = 0; i < 40000; i++) {
		struct record cut = of(FORMAT_REC_TRUNCATE, 1);

		cut.truncate.size = --size;
		assert_int_equal(apply(&t, cut), 0);
		assert_int_equal(apply(&t, own(1, 3)), 0);
		assert_int_equal(apply(&t, of(FORMAT_REC_COMMIT, 1)), 0);
	}
	assert_true((clock() - start) / CLOCKS_PER_SEC < CPU_S_MAX);
	assert_int_equal(blkmap_count(table_find(&t, 1)->map), 40001);
	table_release(&t);
}

static void test_table__sessions_do_not_cost_all_files(void **state)
{
	(void)state;
	struct table t;
	clock_t start = clock();

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	for (file_id_t id = 1; id <= 100000; id++)
		assert_int_equal(apply(&t, fresh(id)), 0);
	for (int i = 0; i < 50000; i++) {
		assert_int_equal(apply(&t, own(7, (blk_t)i % 100)), 0);
		assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
		assert_int_equal(apply(&t, boot(1)), 0);
	}
	assert_true((clock() - start) / CLOCKS_PER_SEC < CPU_S_MAX);
	assert_int_equal(t.count, 100000);
	table_release(&t);
}

/* No writer leaves a session open and opens another boot's: it writes a new map in between. */
static void test_table__going_back_again_and_again_is_refused(void **state)
{
	(void)state;
	struct table t;
	struct record all = own(1, 0);
	uint64_t epoch = 1;
	int r = 0;

	all.run.n = FORMAT_BLK_END;
	table_init(&t);
	assert_int_equal(apply(&t, boot(epoch)), 0);
	assert_int_equal(apply(&t, huge(1)), 0);
	own_every_other_chunk(&t, 20000);
	while (r == 0 && epoch < 10000) {
		r = apply(&t, all);
		r = r ?: apply(&t, boot(++epoch));
	}
	assert_int_equal(r, -EUCLEAN);
	assert_true(epoch < 200);
	table_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table__revert_goes_back_to_the_last_commit),
		cmocka_unit_test(test_table__gone_file_comes_back_only_by_revert),
		cmocka_unit_test(test_table__clean_close_commits_everything),
		cmocka_unit_test(test_table__lost_ids_end_where_all_ids_end),
		cmocka_unit_test(test_table__unknown_files_are_damage),
		cmocka_unit_test(test_table__agrees_with_byte_arrays),
		cmocka_unit_test(test_table__copy_is_what_its_bytes_prove),
		cmocka_unit_test(test_table__copy_that_lacks_what_was_synced_proves_nothing),
		cmocka_unit_test(test_table__copy_of_a_cut_file_is_told_by_its_size),
		cmocka_unit_test(test_table__copy_without_proof_is_as_committed),
		cmocka_unit_test(test_table__copy_brings_gone_files_back),
		cmocka_unit_test(
			test_table__scattered_blocks_are_refused_before_they_fill_the_memory),
		cmocka_unit_test(test_table__truncations_and_commits_do_not_cost_the_whole_map),
		cmocka_unit_test(test_table__sessions_do_not_cost_all_files),
		cmocka_unit_test(test_table__going_back_again_and_again_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
