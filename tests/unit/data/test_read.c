// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/log.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/read.h"

#include <linux/falloc.h>
#include <sys/syscall.h>

#define BIG 50000

static void test_read__is_short_only_at_the_end(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1), p[200];
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(read_file(d->t, i, p, 200, BIG - 100), 100);
		assert_memory_equal(p, data + BIG - 100, 100);
		assert_int_equal(read_file(d->t, i, p, 200, BIG), 0);
		assert_int_equal(read_file(d->t, i, p, 200, BIG + 1000000), 0);
		assert_int_equal(read_file(d->t, i, p, 0, 0), 0);
		assert_int_equal(cow_write(d->t, i, data, 1, 0), 0);
	}
	free(data);
}

static void test_read__more_runs_than_one_batch_are_put_together(void **state)
{
	struct tree_dirs *d = *state;
	const size_t len = 200 * BLK_BYTES;
	char *data = tree_put_pattern(d, "lower/f", len, 1), *p = malloc(len);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	for (unsigned blk = 0; blk < 200; blk += 2) {
		data[blk * BLK_BYTES + 5] = 'x';
		assert_int_equal(cow_write(d->t, i, "x", 1, blk * BLK_BYTES + 5), 0);
	}
	assert_int_equal(read_file(d->t, i, p, len, 0), len);
	assert_memory_equal(p, data, len);
	assert_int_equal(read_file(d->t, i, p, len - 3000, 1500), len - 3000);
	assert_memory_equal(p, data + 1500, len - 3000);
	free(data);
	free(p);
}

static void test_read__lower_file_cut_short_under_us_gives_no_rubbish(void **state)
{
	struct tree_dirs *d = *state;
	char p[3 * BLK_BYTES];
	struct inode *i;
	ssize_t n;
	int fd;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	fd = openat(d->s.fd, "lower/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 2 * BLK_BYTES), 0);
	close(fd);
	memset(p, 'r', sizeof(p));
	n = read_file(d->t, i, p, sizeof(p), 4 * BLK_BYTES);
	assert_true(n == -EIO || n == sizeof(p));
	for (size_t k = 0; n > 0 && k < sizeof(p); k++)
		assert_int_equal(p[k], 0);
}

static void test_read__seek_finds_the_holes_of_every_layer(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	int fd;

	tree_put_text(d, "lower/f", "");
	fd = openat(d->s.fd, "lower/f", O_RDWR);
	assert_int_equal(ftruncate(fd, 100 * BLK_BYTES), 0);
	assert_int_equal(pwrite(fd, "data", 4, 50 * BLK_BYTES), 4);
	close(fd);
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(read_seek(d->t, i, 0, SEEK_DATA),
				 round ? 10 * BLK_BYTES : 50 * BLK_BYTES);
		assert_int_equal(read_seek(d->t, i, 20 * BLK_BYTES, SEEK_DATA), 50 * BLK_BYTES);
		assert_int_equal(read_seek(d->t, i, 50 * BLK_BYTES, SEEK_HOLE), 51 * BLK_BYTES);
		assert_int_equal(read_seek(d->t, i, 51 * BLK_BYTES, SEEK_DATA), -ENXIO);
		assert_int_equal(read_seek(d->t, i, 51 * BLK_BYTES, SEEK_HOLE), 51 * BLK_BYTES);
		assert_int_equal(read_seek(d->t, i, 100 * BLK_BYTES, SEEK_HOLE), -ENXIO);
		assert_int_equal(read_seek(d->t, i, -1, SEEK_DATA), -ENXIO);
		assert_int_equal(cow_write(d->t, i, "x", 1, 10 * BLK_BYTES), 0);
	}
}

static void test_read__punched_blocks_are_holes(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", 100 * BLK_BYTES, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_fallocate(d->t, i, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       10 * BLK_BYTES, 5 * BLK_BYTES),
			 0);
	assert_int_equal(read_seek(d->t, i, 0, SEEK_HOLE), 10 * BLK_BYTES);
	assert_int_equal(read_seek(d->t, i, 10 * BLK_BYTES, SEEK_DATA), 15 * BLK_BYTES);
}

/* In the upper, and in a layer below it. */
static void test_read__partial_file_over_another_one_than_it_was_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	char p[BLK_BYTES];
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "f"), "x", 1, 0), 0);
	tree_unmount(d);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	free(tree_put_pattern(d, "lower/f", BIG + 1, 2));
	log_set_level(-1);
	for (unsigned round = 0; round < 2; round++) {
		tree_mount(d, "volatile");
		i = tree_get(d, "f");
		assert_int_equal(read_file(d->t, i, p, sizeof(p), 0), -EIO);
		assert_int_equal(read_seek(d->t, i, 0, SEEK_DATA), -EIO);
		tree_forget(d, i);
		tree_unmount(d);
		if (round == 0)
			tree_freeze(d);
	}
}

/* Of a server that was started without its standard input. A mount without an upper has no threads
 * that open files. */
static void test_read__descriptor_0_is_read_like_any_other(void **state)
{
	const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	struct tree_dirs *d = *state;
	struct inode *i;
	char p[10];
	ssize_t n;

	tree_put_text(d, "lower/f", "text");
	tree_mount(d, "ro");
	i = tree_get(d, "f");
	close(STDIN_FILENO);
	n = read_file(d->t, i, p, sizeof(p), 0);
	tree_forget(d, i);
	tree_unmount(d);
	if (kept >= 0) {
		dup2(kept, STDIN_FILENO);
		close(kept);
	}
	assert_int_equal(n, 4);
	assert_memory_equal(p, "text", 4);
}

struct seek {
	struct union_fs *t;
	struct inode *i;
};

static int seek_hole(void *arg)
{
	const struct seek *s = arg;

	return (int)read_seek(s->t, s->i, 0, SEEK_HOLE);
}

static void test_read__seek_that_a_layer_refuses_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct seek s;
	int r;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	s = (struct seek){ d->t, tree_get(d, "f") };
	r = scratch_run_denied(SYS_lseek, EIO, seek_hole, &s);
	assert_int_equal(seek_hole(&s), BIG);
	tree_forget(d, s.i);
	if (r == -ENOSYS)
		skip();
	assert_int_equal(r, -EIO);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_read__is_short_only_at_the_end),
		row(test_read__more_runs_than_one_batch_are_put_together),
		row(test_read__lower_file_cut_short_under_us_gives_no_rubbish),
		row(test_read__seek_finds_the_holes_of_every_layer),
		row(test_read__partial_file_over_another_one_than_it_was_is_an_error),
		row(test_read__seek_that_a_layer_refuses_is_an_error),
		row(test_read__descriptor_0_is_read_like_any_other),
		row(test_read__punched_blocks_are_holes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
