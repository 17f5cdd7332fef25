// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "data/zero_blocks.h"
#include "map/mapfile-internal.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"

#include <linux/falloc.h>
#include <string.h>

#define BLKS 40u
#define BIG  (BLKS * BLK_BYTES + 100)

static struct inode *start(struct tree_dirs *d)
{
	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	return tree_get(d, "big");
}

static void write_bytes(struct tree_dirs *d, struct inode *i, int byte, size_t len, off_t off)
{
	char *data = malloc(len);

	memset(data, byte, len);
	assert_int_equal(cow_write(d->t, i, data, len, off), 0);
	free(data);
}

/* Bit b: the map says that block b may be zeros. */
static uint64_t told(struct tree_dirs *d, const struct inode *i)
{
	const struct table_file *f = table_find(&d->t->map->now.table, i->src.id);
	uint64_t found = 0;

	for (blk_t b = 0; f->zero && b < BLKS; b++)
		found |= (uint64_t)blkmap_is_own(f->zero, b) << b;
	return found;
}

static void test_zero_blocks__whole_blocks_are_told_where_they_stand(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);
	char data[5 * BLK_BYTES];

	memset(data, 'x', sizeof(data));
	memset(data + BLK_BYTES, 0, BLK_BYTES);
	memset(data + 3 * BLK_BYTES, 0, BLK_BYTES - 1);
	assert_int_equal(cow_write(d->t, i, data, sizeof(data), 8 * BLK_BYTES), 0);
	assert_int_equal(told(d, i), 1ull << 9);
	tree_forget(d, i);
}

static void test_zero_blocks__block_that_becomes_zeros_by_parts_is_told(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);

	write_bytes(d, i, 0, BLK_BYTES / 2, 5 * BLK_BYTES);
	assert_int_equal(told(d, i), 0);
	write_bytes(d, i, 0, BLK_BYTES / 2, 5 * BLK_BYTES + BLK_BYTES / 2);
	assert_int_equal(told(d, i), 1ull << 5);
	/* The next written block may be marked: that it may be zeros is enough. */
	write_bytes(d, i, 'y', 10, 5 * BLK_BYTES);
	assert_int_equal(told(d, i), 1ull << 5);
	tree_forget(d, i);
}

static void test_zero_blocks__rest_of_a_block_that_was_cut_is_told(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);
	char data[BLK_BYTES] = { 0 };

	memset(data + 3000, 'x', 500);
	assert_int_equal(cow_write(d->t, i, data, sizeof(data), 20 * BLK_BYTES), 0);
	assert_int_equal(told(d, i), 0);
	assert_int_equal(cow_truncate(d->t, i, 20 * BLK_BYTES + 2000), 0);
	assert_int_equal(told(d, i), 1ull << 20);
	tree_forget(d, i);
}

/* A file that shows the lower file's bytes stays so. */
static void test_zero_blocks__cut_makes_no_block_own(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);
	bool is_own;
	blk_t n;

	write_bytes(d, i, 'x', 1, 0);
	assert_int_equal(cow_truncate(d->t, i, 30 * BLK_BYTES + 2000), 0);
	assert_int_equal(told(d, i), 0);
	assert_int_equal(mapfile_run(d->t->map, i->src.id, 30, 1, &is_own, &n), 0);
	assert_false(is_own);
	tree_forget(d, i);
}

static void test_zero_blocks__holes_are_told(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);

	write_bytes(d, i, 'x', 3 * BLK_BYTES, 2 * BLK_BYTES);
	assert_int_equal(cow_fallocate(d->t, i, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       3 * BLK_BYTES, 3 * BLK_BYTES),
			 0);
	assert_int_equal(told(d, i), 7ull << 3);
	tree_forget(d, i);
}

static void test_zero_blocks__what_is_there_is_told_of_a_range(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = start(d);
	int fd;

	write_bytes(d, i, 'x', 4 * BLK_BYTES, 16 * BLK_BYTES);
	fd = openat(d->t->upper->rootfd, "big", O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, (char[BLK_BYTES]){ 0 }, BLK_BYTES, 18 * BLK_BYTES), BLK_BYTES);
	assert_int_equal(zero_blocks_note_range(i, fd, 16 * BLK_BYTES, 20 * BLK_BYTES), 0);
	assert_int_equal(told(d, i), 1ull << 18);
	close(fd);
	tree_forget(d, i);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_zero_blocks__##name, tree_setup, tree_teardown)
	const struct CMUnitTest tests[] = {
		T(whole_blocks_are_told_where_they_stand),
		T(block_that_becomes_zeros_by_parts_is_told),
		T(rest_of_a_block_that_was_cut_is_told),
		T(cut_makes_no_block_own),
		T(holes_are_told),
		T(what_is_there_is_told_of_a_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
