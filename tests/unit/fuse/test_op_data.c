// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"

#include <linux/falloc.h>
#include <string.h>

#define FILE_BYTES ((size_t)100 << 10)

static void test_op_data__reads_end_with_the_file(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char *data, got[8192];
	uint64_t node;

	data = tree_put_pattern(d, "lower/file", FILE_BYTES, 1);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "file");
	for (size_t off = 0; off < FILE_BYTES; off += sizeof(got)) {
		size_t left = FILE_BYTES - off;
		size_t n = left < sizeof(got) ? left : sizeof(got);

		assert_int_equal(fuse_kernel_read(&k, node, off, got, sizeof(got)), n);
		assert_memory_equal(got, data + off, n);
	}
	assert_int_equal(fuse_kernel_read(&k, node, FILE_BYTES - 3, got, sizeof(got)), 3);
	assert_int_equal(fuse_kernel_read(&k, node, FILE_BYTES, got, sizeof(got)), 0);
	assert_int_equal(fuse_kernel_read(&k, node, (uint64_t)1 << 62, got, sizeof(got)), 0);
	fuse_kernel_close(&k);
	op_data_thread_release();
	free(data);
}

static void test_op_data__a_directory_and_a_stale_node_are_not_read(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile");
	char got[16];

	assert_true(fuse_kernel_read(&k, FUSE_ROOT_ID, 0, got, sizeof(got)) < 0);
	assert_int_equal(fuse_kernel_read(&k, 4711, 0, got, sizeof(got)), -ESTALE);
	assert_int_equal(fuse_kernel_write(&k, 4711, 0, "x", 1), -ESTALE);
	fuse_kernel_close(&k);
	op_data_thread_release();
}

static void test_op_data__write_goes_to_the_upper_and_nowhere_else(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char *data, lower[8];
	uint64_t node;
	int fd;

	data = tree_put_pattern(d, "lower/file", FILE_BYTES, 2);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(fuse_kernel_write(&k, node, 5000, "changed", 7), 7);
	assert_int_equal(fuse_kernel_write(&k, node, FILE_BYTES + 10, "behind", 6), 6);
	fd = openat(d->s.fd, "lower/file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, lower, 7, 5000), 7);
	close(fd);
	assert_memory_equal(lower, data + 5000, 7);
	data = realloc(data, FILE_BYTES + 16);
	assert_non_null(data);
	memcpy(data + 5000, "changed", 7);
	memset(data + FILE_BYTES, 0, 10);
	memcpy(data + FILE_BYTES + 10, "behind", 6);
	tree_expect(d, "file", data, FILE_BYTES + 16);
	assert_int_equal(fuse_kernel_attr(&k, node).size, FILE_BYTES + 16);
	fuse_kernel_close(&k);
	free(data);
}

static void test_op_data__write_behind_the_largest_file_fails_and_changes_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_true(fuse_kernel_write(&k, node, (uint64_t)INT64_MAX - 2, "xyz", 3) < 0);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	tree_expect_text(d, "file", "text");
	fuse_kernel_close(&k);
}

static ssize_t seek(struct fuse_kernel *k, uint64_t node, int64_t off, uint32_t whence)
{
	const struct fuse_lseek_in in = { .offset = (uint64_t)off, .whence = whence };
	struct fuse_lseek_out out = { .offset = 0 };
	ssize_t r = FUSE_KERNEL_ASK(k, FUSE_LSEEK, node, in, &out, sizeof(out));

	return r < 0 ? r : (ssize_t)out.offset;
}

static void test_op_data__seek_finds_data_and_holes_within_bounds(void **state)
{
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile");
	uint64_t node = fuse_kernel_make(&k, FUSE_ROOT_ID, "file", 0644);

	assert_int_equal(fuse_kernel_write(&k, node, 1u << 20, "data", 4), 4);
	assert_true(seek(&k, node, 0, SEEK_DATA) <= 1 << 20);
	assert_int_equal(seek(&k, node, 1 << 20, SEEK_HOLE), (1 << 20) + 4);
	assert_int_equal(seek(&k, node, (1 << 20) + 4, SEEK_DATA), -ENXIO);
	assert_int_equal(seek(&k, node, -1, SEEK_DATA), -ENXIO);
	assert_int_equal(seek(&k, node, INT64_MIN, SEEK_HOLE), -ENXIO);
	assert_int_equal(seek(&k, node, 0, SEEK_END), -EINVAL);
	assert_int_equal(seek(&k, node, 0, 99), -EINVAL);
	/* The kernel was asked for pages of a mapping in the hole. */
	assert_true(k.n_notified > 0);
	fuse_kernel_close(&k);
}

static ssize_t allocate(struct fuse_kernel *k, uint64_t node, uint32_t mode, uint64_t off,
			uint64_t len)
{
	const struct fuse_fallocate_in in = { .offset = off, .length = len, .mode = mode };

	return FUSE_KERNEL_ASK(k, FUSE_FALLOCATE, node, in, NULL, 0);
}

static void test_op_data__fallocate_empties_and_refuses_modes_it_lacks(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;
	char *data;

	data = tree_put_pattern(d, "lower/file", FILE_BYTES, 3);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "file");
	assert_true(allocate(&k, node, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) < 0);
	/* Pages of a change that failed are dropped. */
	assert_int_equal(k.last_notified, FUSE_NOTIFY_INVAL_INODE);
	tree_expect(d, "file", data, FILE_BYTES);
	assert_int_equal(allocate(&k, node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192),
			 0);
	memset(data + 4096, 0, 8192);
	tree_expect(d, "file", data, FILE_BYTES);
	fuse_kernel_close(&k);
	free(data);
}

static ssize_t copy(struct fuse_kernel *k, uint64_t from, uint64_t to, uint64_t len, uint64_t flags)
{
	const struct fuse_copy_file_range_in in = { .nodeid_out = to, .len = len, .flags = flags };
	struct fuse_write_out out = { .size = 0 };
	ssize_t r = FUSE_KERNEL_ASK(k, FUSE_COPY_FILE_RANGE, from, in, &out, sizeof(out));

	return r < 0 ? r : (ssize_t)out.size;
}

static void test_op_data__copy_ends_with_its_source_and_takes_no_flags(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t from, to;
	struct fuse_kernel k;
	char *data;

	data = tree_put_pattern(d, "lower/file", FILE_BYTES, 4);
	k = fuse_kernel_mount(d, "volatile");
	from = fuse_kernel_node(&k, "file");
	to = fuse_kernel_make(&k, FUSE_ROOT_ID, "copy", 0644);
	assert_int_equal(copy(&k, from, to, 10, 1), -EINVAL);
	assert_int_equal(copy(&k, from, 4711, 10, 0), -ESTALE);
	for (size_t done = 0; done < FILE_BYTES;) {
		const struct fuse_copy_file_range_in in = {
			.nodeid_out = to, .off_in = done, .off_out = done, .len = FILE_BYTES * 2
		};
		struct fuse_write_out out;

		assert_int_equal(
			FUSE_KERNEL_ASK(&k, FUSE_COPY_FILE_RANGE, from, in, &out, sizeof(out)),
			sizeof(out));
		assert_true(out.size > 0 && out.size <= FILE_BYTES - done);
		done += out.size;
	}
	tree_expect(d, "copy", data, FILE_BYTES);
	fuse_kernel_close(&k);
	free(data);
}

static void test_op_data__sync_is_asked_for_only_where_it_does_something(void **state)
{
	const struct fuse_fsync_in in = { .fh = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile");
	uint64_t node = fuse_kernel_make(&k, FUSE_ROOT_ID, "file", 0644);

	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_FSYNC, node, in, NULL, 0), -ENOSYS);
	fuse_kernel_close(&k);
	tree_unmount(d);
	k = fuse_kernel_mount(d, NULL);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_FSYNC, node, in, NULL, 0), 0);
	fuse_kernel_close(&k);
}

static void test_op_data__full_quota_is_said_by_the_write(void **state)
{
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile,size=1m");
	uint64_t node = fuse_kernel_make(&k, FUSE_ROOT_ID, "file", 0644);
	char *data = calloc(1, FILE_BYTES);
	ssize_t r = 0;

	assert_non_null(data);
	for (uint64_t off = 0; r >= 0 && off < 4u << 20; off += FILE_BYTES)
		r = fuse_kernel_write(&k, node, off, data, FILE_BYTES);
	assert_true(r == -ENOSPC || r == -EDQUOT);
	assert_true(fuse_kernel_attr(&k, node).size <= 1u << 20);
	fuse_kernel_close(&k);
	free(data);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_data__reads_end_with_the_file),
		row(test_op_data__a_directory_and_a_stale_node_are_not_read),
		row(test_op_data__write_goes_to_the_upper_and_nowhere_else),
		row(test_op_data__write_behind_the_largest_file_fails_and_changes_nothing),
		row(test_op_data__seek_finds_data_and_holes_within_bounds),
		row(test_op_data__fallocate_empties_and_refuses_modes_it_lacks),
		row(test_op_data__copy_ends_with_its_source_and_takes_no_flags),
		row(test_op_data__sync_is_asked_for_only_where_it_does_something),
		row(test_op_data__full_quota_is_said_by_the_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
