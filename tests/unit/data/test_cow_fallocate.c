// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"

#include <linux/falloc.h>

#define BIG ((size_t)16 * BLK_BYTES + 100)

struct file {
	struct tree_dirs *d;
	struct inode *i;
	char *bytes;
};

static int setup(void **state)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f || tree_setup((void **)&f->d) < 0)
		return -1;
	f->bytes = tree_put_pattern(f->d, "lower/big", BIG, 1);
	f->bytes = realloc(f->bytes, 4 * BIG);
	memset(f->bytes + BIG, 0, 3 * BIG);
	tree_mount(f->d, "volatile");
	f->i = tree_get(f->d, "big");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct file *f = *state;

	tree_forget(f->d, f->i);
	tree_teardown((void **)&f->d);
	free(f->bytes);
	free(f);
	return 0;
}

static int allocate(struct file *f, int mode, off_t off, off_t len)
{
	return cow_fallocate(f->d->t, f->i, mode, off, len);
}

static void test_cow_fallocate__hole_and_zeros_hide_the_lower_bytes_to_the_byte(void **state)
{
	static const struct {
		off_t off, len;
	} ranges[] = { { 0, 1 },
		       { 4095, 2 },
		       { 3 * 4096, 4096 },
		       { 5 * 4096 + 7, 3 * 4096 },
		       { 15 * 4096, 4096 },
		       { 16 * 4096 + 1, 5 } };
	struct file *f = *state;

	for (size_t k = 0; k < sizeof(ranges) / sizeof(*ranges); k++) {
		const int mode = k % 2 ? FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
				       : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

		assert_int_equal(allocate(f, mode, ranges[k].off, ranges[k].len), 0);
		memset(f->bytes + ranges[k].off, 0, (size_t)ranges[k].len);
		tree_expect_inode(f->d, f->i, f->bytes, BIG);
	}
	assert_true(tree_is_partial(f->d, "upper/big"));
}

static void test_cow_fallocate__range_behind_the_end_grows_the_file_or_keeps_it(void **state)
{
	struct file *f = *state;

	assert_int_equal(allocate(f, FALLOC_FL_KEEP_SIZE, BIG, BIG), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG);
	assert_int_equal(allocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BIG, 10), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG);
	assert_int_equal(allocate(f, 0, BIG - 10, 20), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG + 10);
	assert_int_equal(allocate(f, FALLOC_FL_ZERO_RANGE, BIG + 5, BIG), 0);
	tree_expect_inode(f->d, f->i, f->bytes, 2 * BIG + 5);
}

/* The last block shows the lower file, so that no room is allocated for it. */
static void test_cow_fallocate__range_in_the_last_block_grows_the_file(void **state)
{
	struct file *f = *state;

	assert_int_equal(allocate(f, FALLOC_FL_ZERO_RANGE, BIG + 5, 20), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG + 25);
	assert_int_equal(allocate(f, 0, BIG - 10, 50), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG + 40);
}

/* A later write must not fail for want of room. */
static void test_cow_fallocate__allocation_takes_the_room_and_changes_no_byte(void **state)
{
	struct file *f = *state;
	struct stat st;

	assert_int_equal(allocate(f, 0, 0, BIG), 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG);
	assert_int_equal(fstatat(f->d->s.fd, "upper/big", &st, 0), 0);
	assert_true((size_t)st.st_blocks * 512 >= BIG);
}

static void test_cow_fallocate__other_modes_and_ranges_are_refused(void **state)
{
	struct file *f = *state;

	assert_int_equal(allocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	assert_int_equal(allocate(f, FALLOC_FL_INSERT_RANGE, 0, 4096), -EOPNOTSUPP);
	assert_int_equal(allocate(f, 1 << 20, 0, 4096), -EOPNOTSUPP);
	assert_true(allocate(f, 0, INT64_MAX - 5, 10) < 0);
	tree_expect_inode(f->d, f->i, f->bytes, BIG);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_cow_fallocate__hole_and_zeros_hide_the_lower_bytes_to_the_byte),
		row(test_cow_fallocate__range_behind_the_end_grows_the_file_or_keeps_it),
		row(test_cow_fallocate__range_in_the_last_block_grows_the_file),
		row(test_cow_fallocate__allocation_takes_the_room_and_changes_no_byte),
		row(test_cow_fallocate__other_modes_and_ranges_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
