// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/union/lookup.h"

#include <linux/falloc.h>
#include <sys/syscall.h>

#define BYTES ((size_t)2 * CHUNK_BYTES + 5000)
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

struct file {
	struct tree_dirs *d;
	struct inode *i;
	char *data; /* what it must show */
	size_t size;
};

static struct file open_file(struct tree_dirs *d, size_t size)
{
	struct file f = { .d = d, .size = size, .data = tree_put_pattern(d, "lower/f", size, 1) };

	tree_mount(d, "volatile");
	f.i = tree_get(d, "f");
	return f;
}

static void write_at(struct file *f, size_t off, size_t len)
{
	tree_pattern(f->data + off, len, off + 7);
	assert_int_equal(cow_write(f->d->t, f->i, f->data + off, len, (off_t)off), 0);
}

static void close_file(struct file *f)
{
	tree_expect_inode(f->d, f->i, f->data, f->size);
	tree_unmount(f->d);
	tree_mount(f->d, "volatile");
	tree_expect(f->d, "f", f->data, f->size);
	free(f->data);
}

static blkcnt_t upper_blocks(struct tree_dirs *d)
{
	struct stat st;

	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	return st.st_blocks * 512 / BLK_BYTES;
}

static bool owns(const struct file *f, blk_t blk)
{
	bool is_own;
	blk_t n;

	assert_int_equal(mapfile_run(f->d->t->map, f->i->src.id, blk, 1, &is_own, &n), 0);
	return is_own;
}

static void test_cow__one_byte_takes_one_block(void **state)
{
	struct file f = open_file(*state, BYTES);

	write_at(&f, 100000, 1);
	assert_true(owns(&f, 100000 / BLK_BYTES));
	assert_false(owns(&f, 100000 / BLK_BYTES - 1));
	assert_false(owns(&f, 100000 / BLK_BYTES + 1));
	assert_in_range(upper_blocks(f.d), 1, 2);
	close_file(&f);
}

static void test_cow__write_across_two_blocks_completes_both(void **state)
{
	struct file f = open_file(*state, BYTES);

	write_at(&f, 3 * BLK_BYTES - 1, 2);
	close_file(&f);
}

static void test_cow__half_a_chunk_takes_it_whole(void **state)
{
	struct file f = open_file(*state, BYTES);

	write_at(&f, CHUNK_BYTES + 1000, CHUNK_BYTES / 2);
	assert_true(owns(&f, CHUNK_BLKS));
	assert_true(owns(&f, 2 * CHUNK_BLKS - 1));
	assert_false(owns(&f, CHUNK_BLKS - 1));
	assert_false(owns(&f, 2 * CHUNK_BLKS));
	close_file(&f);
}

static void test_cow__less_than_half_a_chunk_takes_its_blocks(void **state)
{
	struct file f = open_file(*state, BYTES);

	write_at(&f, CHUNK_BYTES, CHUNK_BYTES / 2 - BLK_BYTES);
	assert_false(owns(&f, 2 * CHUNK_BLKS - 1));
	close_file(&f);
}

static void test_cow__write_past_the_end_leaves_zeros_between(void **state)
{
	struct file f = open_file(*state, 30000);

	f.data = realloc(f.data, 100000);
	memset(f.data + 30000, 0, 70000);
	f.size = 90010;
	write_at(&f, 90000, 10);
	close_file(&f);
}

static void test_cow__what_was_cut_off_never_comes_back(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_truncate(f.d->t, f.i, 12345), 0);
	assert_int_equal(cow_truncate(f.d->t, f.i, (off_t)BYTES), 0);
	memset(f.data + 12345, 0, BYTES - 12345);
	close_file(&f);
}

static void test_cow__cut_that_the_map_never_heard_of_holds(void **state)
{
	struct file f = open_file(*state, BYTES);
	int fd;

	write_at(&f, 0, 1);
	tree_unmount(f.d);
	/* As a server leaves it that dies between the two. */
	fd = openat(f.d->s.fd, "upper/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 40000), 0);
	close(fd);
	tree_mount(f.d, "volatile");
	f.i = tree_get(f.d, "f");
	tree_expect_inode(f.d, f.i, f.data, 40000);
	memset(f.data + 40000, 0, BYTES - 40000);
	write_at(&f, 300000, 10);
	f.size = 300010;
	tree_expect_inode(f.d, f.i, f.data, f.size);
	assert_int_equal(cow_truncate(f.d->t, f.i, (off_t)BYTES), 0);
	f.size = BYTES;
	close_file(&f);
}

static void test_cow__data_that_the_map_never_heard_of_is_not_shown(void **state)
{
	struct file f = open_file(*state, BYTES);
	int fd;

	write_at(&f, 0, 1);
	tree_unmount(f.d);
	fd = openat(f.d->s.fd, "upper/f", O_WRONLY);
	assert_int_equal(pwrite(fd, "rubbish", 7, 200000), 7);
	close(fd);
	tree_mount(f.d, "volatile");
	f.i = tree_get(f.d, "f");
	tree_expect_inode(f.d, f.i, f.data, f.size);
	write_at(&f, 200100, 5);
	close_file(&f);
}

static void test_cow__zeroing_parts_of_two_blocks_writes_zeros_alone(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_fallocate(f.d->t, f.i, PUNCH, 5 * BLK_BYTES + 10, 2 * BLK_BYTES - 20),
			 0);
	memset(f.data + 5 * BLK_BYTES + 10, 0, 2 * BLK_BYTES - 20);
	close_file(&f);
}

static void test_cow__punching_inside_one_block_keeps_the_rest(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_fallocate(f.d->t, f.i, PUNCH, 5 * BLK_BYTES + 10, 20), 0);
	memset(f.data + 5 * BLK_BYTES + 10, 0, 20);
	close_file(&f);
}

static void test_cow__punching_past_the_end_changes_no_size(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_fallocate(f.d->t, f.i, PUNCH, (off_t)BYTES - 6000, 1000000), 0);
	memset(f.data + BYTES - 6000, 0, 6000);
	close_file(&f);
}

static void test_cow__allocation_takes_lower_blocks_along(void **state)
{
	struct file f = open_file(*state, BYTES);

	write_at(&f, 20000, 10);
	assert_int_equal(cow_fallocate(f.d->t, f.i, 0, 0, (off_t)BYTES), 0);
	assert_int_equal(cow_fallocate(f.d->t, f.i, FALLOC_FL_KEEP_SIZE, 0, (off_t)BYTES + 100000),
			 0);
	assert_int_equal(cow_fallocate(f.d->t, f.i, 0, (off_t)BYTES, 100000), 0);
	f.data = realloc(f.data, BYTES + 100000);
	memset(f.data + BYTES, 0, 100000);
	f.size = BYTES + 100000;
	assert_int_equal(mapfile_is_complete(f.i->src.map, f.i->src.id), 1);
	close_file(&f);
}

static void test_cow__unknown_fallocate_modes_are_refused(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_fallocate(f.d->t, f.i, FALLOC_FL_COLLAPSE_RANGE, 0, BLK_BYTES),
			 -EOPNOTSUPP);
	assert_int_equal(cow_fallocate(f.d->t, f.i, FALLOC_FL_INSERT_RANGE, 0, BLK_BYTES),
			 -EOPNOTSUPP);
	assert_int_equal(cow_fallocate(f.d->t, f.i, 0, -1, BLK_BYTES), -EINVAL);
	assert_int_equal(cow_fallocate(f.d->t, f.i, 0, 0, 0), -EINVAL);
	close_file(&f);
}

static int setup_tmpfs(void **state)
{
	int r;

	setenv("TMPDIR", "/dev/shm", 1);
	r = tree_setup(state);
	unsetenv("TMPDIR");
	return r;
}

/* tmpfs knows no ZERO_RANGE: zeros are written in its place. */
static void test_cow__zeroing_to_an_unaligned_end_keeps_the_size(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_fallocate(f.d->t, f.i, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				       (off_t)BYTES - 9000, 9000),
			 0);
	memset(f.data + BYTES - 9000, 0, 9000);
	close_file(&f);
}

static void test_cow__truncation_to_nothing_copies_nothing(void **state)
{
	struct file f = open_file(*state, BYTES);

	assert_int_equal(cow_truncate(f.d->t, f.i, 0), 0);
	/* The mark stays for the inode number; nothing of the lower file can be seen. */
	assert_true(tree_is_partial(f.d, "upper/f"));
	assert_int_equal(mapfile_is_complete(f.d->t->map, f.i->src.id), 1);
	f.size = 0;
	close_file(&f);
}

static void test_cow__siblings_over_one_lower_file_do_not_see_each_other(void **state)
{
	struct file f = open_file(*state, BYTES);
	char *old = malloc(BYTES);

	memcpy(old, f.data, BYTES);
	write_at(&f, 50000, 5000);
	tree_unmount(f.d);
	assert_int_equal(renameat(f.d->s.fd, "upper", f.d->s.fd, "other"), 0);
	tree_put_dir(f.d, "upper");
	tree_mount(f.d, "volatile");
	tree_expect(f.d, "f", old, BYTES);
	tree_unmount(f.d);
	assert_int_equal(renameat2(f.d->s.fd, "upper", f.d->s.fd, "other", RENAME_EXCHANGE), 0);
	tree_mount(f.d, "volatile");
	tree_expect(f.d, "f", f.data, BYTES);
	free(old);
	free(f.data);
}

static void test_cow__synced_file_has_nothing_pending(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BYTES, 1);
	struct inode *i;

	tree_mount(d, NULL);
	i = tree_get(d, "f");
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	assert_false(tree_is_there(d, "upper/f"));
	assert_int_equal(cow_write(d->t, i, "x", 1, 100), 0);
	assert_int_not_equal(mapfile_pending(d->t->map, i->src.id), MAPFILE_CLEAN);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	assert_int_equal(mapfile_pending(d->t->map, i->src.id), MAPFILE_CLEAN);
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	free(data);
}

/* The kernel tells of it once, and whoever syncs first hears it. */
static void test_cow__what_an_unasked_sync_lost_the_next_fsync_tells(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BYTES, 1);
	struct inode *i;

	tree_mount(d, NULL);
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 100), 0);
	i->sync_error = -EIO; /* as a failed sync leaves it */
	assert_int_equal(cow_fsync_unasked(d->t, i), -EIO);
	assert_int_not_equal(mapfile_pending(d->t->map, i->src.id), MAPFILE_CLEAN);
	assert_int_equal(cow_fsync_unasked(d->t, i), -EIO);
	assert_int_equal(cow_fsync(d->t, i, true), -EIO);
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	assert_int_equal(cow_fsync_unasked(d->t, i), 0);
	free(data);
}

/* For this thread: a mount writes its map ahead by another. */
static _Thread_local bool is_full;

/* In place of the C library's. */
ssize_t pwrite(int fd, const void *p, size_t len, off_t off)
{
	if (!is_full)
		return syscall(SYS_pwrite64, fd, p, len, off);
	errno = ENOSPC;
	return -1;
}

static _Thread_local unsigned n_fsync, n_fdatasync;

int fsync(int fd)
{
	n_fsync++;
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	n_fdatasync++;
	return (int)syscall(SYS_fdatasync, fd);
}

static void test_cow__first_sync_of_a_copy_is_one_of_its_name(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BYTES, 1);
	struct inode *i;

	tree_mount(d, "cow=copy");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 100), 0);
	n_fsync = n_fdatasync = 0;
	assert_int_equal(cow_fsync_unasked(d->t, i), 0);
	assert_int_equal(n_fsync, 0);
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	assert_int_equal(n_fsync, 1);
	assert_int_equal(n_fdatasync, 1);
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	assert_int_equal(n_fsync, 1);
	assert_int_equal(n_fdatasync, 2);
	tree_forget(d, i);
	free(data);
}

static void test_cow__write_in_place_that_finds_no_room_is_an_error(void **state)
{
	struct file f = open_file(*state, BYTES);
	struct inode *plain;

	write_at(&f, 5, 1);
	is_full = true;
	assert_int_equal(cow_write(f.d->t, f.i, "x", 1, 5), -ENOSPC);
	is_full = false;
	plain = tree_make(f.d, "", "plain", S_IFREG | 0644);
	assert_int_equal(cow_write(f.d->t, plain, "old", 3, 0), 0);
	is_full = true;
	assert_int_equal(cow_write(f.d->t, plain, "new", 3, 0), -ENOSPC);
	is_full = false;
	tree_expect_inode(f.d, plain, "old", 3);
	tree_forget(f.d, plain);
	close_file(&f);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_cow__one_byte_takes_one_block),
		row(test_cow__write_across_two_blocks_completes_both),
		row(test_cow__half_a_chunk_takes_it_whole),
		row(test_cow__less_than_half_a_chunk_takes_its_blocks),
		row(test_cow__write_past_the_end_leaves_zeros_between),
		row(test_cow__what_was_cut_off_never_comes_back),
		row(test_cow__cut_that_the_map_never_heard_of_holds),
		row(test_cow__data_that_the_map_never_heard_of_is_not_shown),
		row(test_cow__zeroing_parts_of_two_blocks_writes_zeros_alone),
		row(test_cow__punching_inside_one_block_keeps_the_rest),
		row(test_cow__punching_past_the_end_changes_no_size),
		row(test_cow__allocation_takes_lower_blocks_along),
		row(test_cow__unknown_fallocate_modes_are_refused),
		cmocka_unit_test_setup_teardown(
			test_cow__zeroing_to_an_unaligned_end_keeps_the_size, setup_tmpfs,
			tree_teardown),
		row(test_cow__truncation_to_nothing_copies_nothing),
		row(test_cow__siblings_over_one_lower_file_do_not_see_each_other),
		row(test_cow__synced_file_has_nothing_pending),
		row(test_cow__what_an_unasked_sync_lost_the_next_fsync_tells),
		row(test_cow__first_sync_of_a_copy_is_one_of_its_name),
		row(test_cow__write_in_place_that_finds_no_room_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
