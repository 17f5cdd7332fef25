// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/log.h"
#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/flatten.h"

#include <signal.h>
#include <sys/resource.h>

#define SIZE ((size_t)1 << 20)

static struct flatten_stats flatten(struct tree_dirs *d, int want)
{
	struct flatten_stats s;

	assert_int_equal(flatten_tree(d->t, NULL, NULL, &s), want);
	return s;
}

static void write_text(struct tree_dirs *d, const char *path, const char *text, off_t off)
{
	struct inode *i = tree_get(d, path);

	assert_int_equal(cow_write(d->t, i, text, strlen(text), off), 0);
	tree_forget(d, i);
}

static void rename_in_root(struct tree_dirs *d, const char *from, const char *to)
{
	struct inode *root = d->t->root;

	tree_forget(d, tree_get(d, from));
	assert_int_equal(rename_entry(d->t, root, from, root, to, 0), 0);
}

static void expect_raw(struct tree_dirs *d, const char *rel, const void *want, size_t len)
{
	int fd = openat(d->s.fd, rel, O_RDONLY);
	char *got = malloc(len + 1);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, got, len + 1, 0), (ssize_t)len);
	assert_memory_equal(got, want, len);
	free(got);
	close(fd);
}

static void test_flatten__partial_file_holds_all_it_shows(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);

	tree_mount(d, "volatile");
	write_text(d, "f", "new", 500000);
	memcpy(data + 500000, "new", 3);
	assert_true(tree_is_partial(d, "upper/f"));

	struct flatten_stats s = flatten(d, 0);

	assert_int_equal(s.files, 1);
	assert_int_equal(s.nfiles, 1);
	assert_int_equal(s.left, 0);
	/* The block of the write was there. */
	assert_int_equal(s.bytes, SIZE - BLK_BYTES);
	assert_true(s.has_removed_map);
	assert_false(tree_is_partial(d, "upper/f"));
	assert_false(tree_is_there(d, "upper/" MAPFILE_NAME));
	expect_raw(d, "upper/f", data, SIZE);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "f", data, SIZE);
	free(data);
}

static void test_flatten__times_are_kept(void **state)
{
	struct tree_dirs *d = *state;
	const struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
	struct stat st;

	free(tree_put_pattern(d, "lower/f", SIZE, 1));
	tree_mount(d, "volatile");
	write_text(d, "f", "new", 0);
	tree_unmount(d);
	assert_int_equal(utimensat(d->s.fd, "upper/f", times, 0), 0);
	tree_mount(d, "volatile");
	flatten(d, 0);
	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	assert_int_equal(st.st_atim.tv_sec, 1000);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 7);
	assert_int_equal(xattr_get(d->s.fd, "upper/f", "user.veneer.flatten", NULL, 0), -ENODATA);
}

static void test_flatten__what_a_killed_run_kept_is_put_back(void **state)
{
	struct tree_dirs *d = *state;
	/* version, mode, access and modification time */
	const uint8_t kept[32] = { 1, 0, 0, 0,	  0xa4, 1, 0, 0, 0xe8, 3, 0, 0, 0,
				   0, 0, 0, 0xd0, 7,	0, 0, 0, 0,    0, 0, 9 };
	struct stat st;

	free(tree_put_pattern(d, "lower/f", SIZE, 1));
	tree_mount(d, "volatile");
	write_text(d, "f", "new", 0);
	assert_int_equal(
		xattr_set(d->s.fd, "upper/f", "user.veneer.flatten", kept, sizeof(kept), 0), 0);
	flatten(d, 0);
	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	assert_int_equal(st.st_atim.tv_sec, 1000);
	assert_int_equal(st.st_atim.tv_nsec, 9);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(xattr_get(d->s.fd, "upper/f", "user.veneer.flatten", NULL, 0), -ENODATA);
}

static void test_flatten__redirected_directory_holds_all_it_shows(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/dir/sub/f", SIZE, 1);
	struct inode *dir;

	tree_put_text(d, "lower/dir/gone", "gone");
	tree_put_text(d, "lower/dir/small", "small");
	tree_mount(d, "volatile");
	rename_in_root(d, "dir", "moved");
	dir = tree_get(d, "moved");
	tree_forget(d, tree_get(d, "moved/gone"));
	assert_int_equal(remove_file(d->t, dir, "gone"), 0);
	tree_forget(d, dir);
	tree_unmount(d);
	tree_mount(d, "volatile");

	struct flatten_stats s = flatten(d, 0);

	assert_int_equal(s.dirs, 1);
	assert_int_equal(s.copied, 3);
	tree_unmount(d);
	expect_raw(d, "upper/moved/sub/f", data, SIZE);
	assert_false(tree_is_there(d, "upper/moved/gone"));
	assert_false(tree_is_there(d, "upper/moved/.wh.gone"));
	assert_int_equal(xattr_get(d->s.fd, "upper/moved", "user.overlay.redirect", NULL, 0),
			 -ENODATA);
	tree_mount(d, "volatile");
	tree_expect_names(d, "moved", "small sub");
	tree_expect(d, "moved/sub/f", data, SIZE);
	tree_expect_text(d, "moved/small", "small");
	free(data);
}

static void test_flatten__damaged_file_is_left(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/good", SIZE, 1);

	free(tree_put_pattern(d, "lower/bad", SIZE, 2));
	tree_mount(d, "volatile");
	write_text(d, "good", "new", 0);
	write_text(d, "bad", "new", 0);
	tree_unmount(d);
	assert_int_equal(unlinkat(d->s.fd, "lower/bad", 0), 0);
	log_set_level(LOG_LVL_ERROR);
	tree_mount(d, "volatile");

	struct flatten_stats s = flatten(d, 0);

	assert_int_equal(s.left, 1);
	assert_false(s.has_removed_map);
	assert_true(tree_is_partial(d, "upper/bad"));
	assert_false(tree_is_partial(d, "upper/good"));
	memcpy(data, "new", 3);
	expect_raw(d, "upper/good", data, SIZE);
	free(data);
}

static void test_flatten__file_that_cannot_be_written_is_left(void **state)
{
	struct tree_dirs *d = *state;
	struct flatten_stats s;
	struct rlimit before, limit;

	free(tree_put_pattern(d, "lower/f", SIZE, 1));
	tree_mount(d, "volatile");
	write_text(d, "f", "new", 0);
	/* EFBIG, of this file alone. */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = (struct rlimit){ SIZE / 2, before.rlim_max };
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(flatten_tree(d->t, NULL, NULL, &s), 0);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(s.left, 1);
	assert_true(tree_is_partial(d, "upper/f"));
	assert_int_equal(flatten(d, 0).left, 0);
	assert_false(tree_is_partial(d, "upper/f"));
}

static void test_flatten__empty_map_goes(void **state)
{
	struct tree_dirs *d = *state;
	file_id_t id;

	tree_put_text(d, "lower/f", "text");
	tree_mount(d, "volatile");
	assert_int_equal(mapfile_file_new(d->t->map, 100000, &id), 0);
	assert_true(flatten(d, 0).has_removed_map);
	assert_false(tree_is_there(d, "upper/" MAPFILE_NAME));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_flatten__partial_file_holds_all_it_shows,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(test_flatten__times_are_kept, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(test_flatten__what_a_killed_run_kept_is_put_back,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_flatten__redirected_directory_holds_all_it_shows, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_flatten__damaged_file_is_left, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(test_flatten__file_that_cannot_be_written_is_left,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(test_flatten__empty_map_goes, tree_setup,
						tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
