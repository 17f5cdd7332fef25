// SPDX-License-Identifier: Apache-2.0
/* The checkers of blkmap.c, table.c, journal.c and mapfile.c: each rule, broken by hand. */
#include "map/blkmap.c"

#include "map/mapfile-internal.h"
#include "support/broken.h"
#include "support/maps.h"

#define NBLK 1000u

/* Chunks 0 to 6 and a part of the last one, in two levels: chunk 1 is all own, of chunk 2 a part.
 */
static struct blkmap *some_map(void)
{
	struct blkmap *m = blkmap_new(NBLK * BLK_BYTES - 1);

	assert_non_null(m);
	assert_int_equal(blkmap_set(m, CHUNK_BLKS, CHUNK_BLKS + 10), 0);
	return m;
}

static void test_blkmap_invariants__each_rule_can_be_broken(void **state)
{
	struct blkmap *m = some_map();
	struct node *root = m->root;
	struct leaf *l = root->slots[2];

	(void)state;
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: the tree reaches to the clip", m->clip,
		      NBLK * BLK_BYTES + 1);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: the tree reaches to the clip", m->height,
		      0);
	EXPECT_BROKEN(blkmap_check_invariants(m),
		      "blkmap: no more blocks are own than the clip has", m->count, NBLK + 1);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: count is the number of own blocks",
		      m->count, m->count - 1);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: bytes is the size of all slots",
		      m->bytes, m->bytes + 16);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: count is the number of own blocks",
		      root->slots[3], FULL);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: count is the number of own blocks",
		      l->bits[1], 1);
	blkmap_truncate(m, (2 * CHUNK_BLKS + 20) * BLK_BYTES);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: no slot begins at or past the clip",
		      root->slots[3], FULL);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: a leaf has no bit at or past the clip",
		      l->bits[0], 1ull << 20);
	EXPECT_BROKEN(blkmap_check_invariants(m), "blkmap: a slot that is all own is FULL",
		      l->bits[0], (1ull << 20) - 1);
	blkmap_free(m);
}

static void test_blkmap_invariants__cut_to_own_blocks_leaves_no_slots(void **state)
{
	struct blkmap *m = some_map();
	const size_t empty = heap_bytes(sizeof(*m));

	(void)state;
	assert_int_equal(blkmap_set(m, 0, CHUNK_BLKS), 0);
	blkmap_truncate(m, (2 * CHUNK_BLKS + 5) * BLK_BYTES);
	assert_true(blkmap_is_complete(m));
	assert_null(blkmap_check_invariants(m));
	assert_int_equal(blkmap_bytes(m), empty);
	blkmap_free(m);
}

static struct table_file *file_with_all(struct table *t)
{
	static const struct record records[] = {
		{ .type = FORMAT_REC_OPEN, .open = { .epoch = 1 } },
		{ .type = FORMAT_REC_NEW, .id = 5, .fresh.clip = NBLK * BLK_BYTES },
		{ .type = FORMAT_REC_OWN_RUN, .id = 5, .run = { 0, 400 } },
		{ .type = FORMAT_REC_COMMIT, .id = 5 },
		{ .type = FORMAT_REC_TRUNCATE, .id = 5, .truncate.size = 300 * BLK_BYTES },
		{ .type = FORMAT_REC_ZERO_RUN, .id = 5, .run = { 20, 20 } },
		{ .type = FORMAT_REC_NEW, .id = 6, .fresh.clip = NBLK * BLK_BYTES },
		{ .type = FORMAT_REC_OWN_RUN, .id = 6, .run = { 200, 10 } },
	};
	const char *why;

	table_init(t);
	for (size_t k = 0; k < sizeof(records) / sizeof(*records); k++)
		assert_int_equal(table_apply(t, &records[k], &why), 0);
	return table_find(t, 5);
}

static void test_table_invariants__each_rule_can_be_broken(void **state)
{
	struct table t;
	struct table_file *f = file_with_all(&t), *g = table_find(&t, 6);
	struct blkmap *other = blkmap_new(7 * BLK_BYTES), *more = blkmap_new(NBLK * BLK_BYTES);

	(void)state;
	assert_non_null(f->cut);
	assert_int_equal(blkmap_set(more, 0, 250), 0);
	EXPECT_BROKEN(table_check_invariants(&t, g), "table: the next id is above all others",
		      t.next_id, 6);
	EXPECT_BROKEN(table_check_invariants(&t, f),
		      "table: a file is dirty if a boot would change it", f->is_dirty, false);
	EXPECT_BROKEN(table_check_invariants(&t, g), "table: pend has the clip of map", g->pend,
		      other);
	EXPECT_BROKEN(table_check_invariants(&t, g), "table: pend is a part of map", g->pend, more);
	EXPECT_BROKEN(table_check_invariants(&t, f), "table: cut begins at the clip of map", f->cut,
		      more);
	EXPECT_BROKEN(table_check_invariants(&t, f),
		      "table: zero has the clip of the committed state", f->zero, other);
	EXPECT_BROKEN(table_check_invariants(&t, NULL),
		      "table: count and bytes are the sums over its files", t.count, 3);
	EXPECT_BROKEN(table_check_invariants(&t, NULL),
		      "table: count and bytes are the sums over its files", t.bytes, t.bytes + 1);
	EXPECT_BROKEN(table_check_invariants(&t, NULL),
		      "table: the list of dirty files is linked both ways", t.dirty->dirty_prev, f);
	EXPECT_BROKEN(table_check_invariants(&t, NULL), "table: each dirty file is listed once",
		      t.dirty->dirty_next, NULL);
	EXPECT_BROKEN(table_check_invariants(&t, NULL), "table: ids were lost below the next one",
		      t.lost_end, t.next_id + 1);
	EXPECT_BROKEN(table_check_invariants(&t, NULL), "table: ids were lost below the next one",
		      t.lost_first, 1);
	blkmap_free(other);
	blkmap_free(more);
	table_release(&t);
}

static void test_mapfile_invariants__each_rule_can_be_broken(void **state)
{
	struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	const file_id_t id = maps_new_file(mf, MIB);
	struct table_file *f = table_find(&mf->now.table, id);

	assert_int_equal(mapfile_own(mf, id, 3, 4), 0);
	EXPECT_BROKEN(mapfile_check_invariants(mf),
		      "mapfile: a change is durable after it was recorded", mf->durable_lsn,
		      mf->lsn + 1);
	EXPECT_BROKEN(mapfile_check_invariants(mf),
		      "mapfile: a first map is prepared while there is none", mf->prepared,
		      (void *)mf);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "mapfile: a session is in a log",
		      mf->journal.fd, -1);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "mapfile: no file waits for a change to come",
		      f->must_lsn, mf->lsn + 1);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "mapfile: no file waits for a change to come",
		      f->change_lsn, mf->lsn + 1);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "mapfile: no file waits for a change to come",
		      f->commit_lsn, mf->lsn + 1);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "journal: an open log is mapped",
		      mf->journal.map, NULL);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "journal: the end of the log is in the mapping",
		      mf->journal.tail, mf->journal.cap + 1);
	EXPECT_BROKEN(mapfile_check_invariants(mf), "journal: the end of the log is in the mapping",
		      mf->journal.map_off, mf->journal.tail + 1);
	mapfile_close(mf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blkmap_invariants__each_rule_can_be_broken),
		cmocka_unit_test(test_blkmap_invariants__cut_to_own_blocks_leaves_no_slots),
		cmocka_unit_test(test_table_invariants__each_rule_can_be_broken),
		cmocka_unit_test_setup_teardown(test_mapfile_invariants__each_rule_can_be_broken,
						maps_setup, maps_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
