// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"

#define BLKS  300
#define BYTES ((uint64_t)BLKS * BLK_BYTES)

static struct source *open_file(struct tree_dirs *d, struct inode **ret)
{
	struct source *top;

	free(tree_put_pattern(d, "lower/f", BYTES, 1));
	tree_mount(d, "volatile");
	*ret = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, *ret, "x", 1, 10 * BLK_BYTES + 7), 0);
	assert_int_equal(read_top(d->t, *ret, &top), 0);
	return top;
}

static void expect_run(struct source *top, uint64_t off, uint64_t len, const struct source *src,
		       uint64_t run_len)
{
	struct run run;

	assert_int_equal(run_find(top, off, len, &run), 0);
	assert_ptr_equal(run.src, src);
	assert_int_equal(run.off, off);
	assert_int_equal(run.len, run_len);
}

static void test_run__plain_file_is_one_run(void **state)
{
	struct tree_dirs *d = *state;
	struct source *top;

	free(tree_put_pattern(d, "lower/f", BYTES, 1));
	tree_mount(d, "volatile");
	assert_int_equal(read_top(d->t, tree_get(d, "f"), &top), 0);
	expect_run(top, 123, 1000000, top, 1000000);
}

static void test_run__own_block_splits_the_lower_run(void **state)
{
	struct inode *i;
	struct source *top = open_file(*state, &i);

	expect_run(top, 0, BYTES, top->below, 10 * BLK_BYTES);
	expect_run(top, 100, BYTES - 100, top->below, 10 * BLK_BYTES - 100);
	expect_run(top, 10 * BLK_BYTES, BYTES - 10 * BLK_BYTES, top, BLK_BYTES);
	expect_run(top, 10 * BLK_BYTES + 9, 5, top, 5);
	expect_run(top, 11 * BLK_BYTES, 50, top->below, 50);
	expect_run(top, BYTES - 1, 1, top->below, 1);
}

static void test_run__what_was_cut_off_is_zeros_and_then_own(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct source *top = open_file(d, &i);

	assert_int_equal(cow_truncate(d->t, i, 20 * BLK_BYTES + 100), 0);
	assert_int_equal(cow_truncate(d->t, i, (off_t)BYTES), 0);
	expect_run(top, 20 * BLK_BYTES, BLK_BYTES, top->below, 100);
	expect_run(top, 20 * BLK_BYTES + 100, 10, NULL, 10);
	expect_run(top, 20 * BLK_BYTES + 100, BLK_BYTES, NULL, BLK_BYTES - 100);
	expect_run(top, 21 * BLK_BYTES, 4 * BLK_BYTES, top, 4 * BLK_BYTES);
}

static void test_run__chain_of_layers_is_walked_down(void **state)
{
	struct tree_dirs *d = *state;
	struct source *top, *bottom;
	struct inode *i;
	struct run run;

	open_file(d, &i);
	for (unsigned k = 1; k < 5; k++) {
		tree_unmount(d);
		tree_freeze(d);
		tree_mount(d, "volatile");
		i = tree_get(d, "f");
		assert_int_equal(cow_write(d->t, i, "x", 1, (10 + k) * BLK_BYTES), 0);
	}
	assert_int_equal(read_top(d->t, i, &top), 0);
	for (bottom = top; bottom->below; bottom = bottom->below)
		;
	expect_run(top, 0, BYTES, bottom, 10 * BLK_BYTES);
	expect_run(top, 15 * BLK_BYTES, BYTES - 15 * BLK_BYTES, bottom, BYTES - 15 * BLK_BYTES);
	for (unsigned k = 0; k < 5; k++) {
		struct source *s = top;

		for (unsigned down = 4; down > k; down--)
			s = s->below;
		assert_int_equal(run_find(top, (10 + k) * BLK_BYTES, 5 * BLK_BYTES, &run), 0);
		assert_ptr_equal(run.src, s);
		assert_int_equal(run.len, BLK_BYTES);
	}
}

static void test_run__map_that_lost_the_file_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct source *top = open_file(d, &i);
	struct run run;

	assert_int_equal(mapfile_file_gone(d->t->map, top->id), 0);
	assert_int_equal(run_find(top, 0, 10, &run), -EUCLEAN);
}

static void test_run__runs_cover_a_range_without_gap(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("runs");
	struct inode *i;
	struct source *top = open_file(d, &i);

	for (unsigned k = 0; k < 60; k++)
		assert_int_equal(cow_write(d->t, i, "x", 1, (off_t)(tree_random(&seed) % BYTES)),
				 0);
	for (uint64_t off = 0; off < BYTES;) {
		struct run run;

		assert_int_equal(run_find(top, off, BYTES - off, &run), 0);
		assert_int_equal(run.off, off);
		assert_in_range(run.len, 1, BYTES - off);
		off += run.len;
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_run__plain_file_is_one_run),
		row(test_run__own_block_splits_the_lower_run),
		row(test_run__what_was_cut_off_is_zeros_and_then_own),
		row(test_run__chain_of_layers_is_walked_down),
		row(test_run__map_that_lost_the_file_is_damage),
		row(test_run__runs_cover_a_range_without_gap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
