// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/layer/whiteout.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#define BIG 50000

static int unlink_in(struct tree_dirs *d, const char *dir, const char *name)
{
	struct inode *parent = tree_get(d, dir);
	int r = remove_file(d->t, parent, name);

	tree_forget(d, parent);
	return r;
}

static bool is_whiteout(struct tree_dirs *d, const char *rel)
{
	struct stat st;

	return fstatat(d->s.fd, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       whiteout_is_device(st.st_mode, st.st_rdev);
}

/* Entries of the mount's own work directory, but for the shared whiteout and a map that was made
 * ahead. */
static unsigned work_entries(struct tree_dirs *d)
{
	DIR *dir = fdopendir(openat(d->t->workfd, ".", O_RDONLY | O_DIRECTORY));
	struct dirent *de;
	unsigned n = 0;

	while ((de = readdir(dir)))
		n += *de->d_name != '.' && strcmp(de->d_name, "#whiteout") &&
		     strncmp(de->d_name, "veneer-map-", strlen("veneer-map-"));
	closedir(dir);
	return n;
}

static void test_remove__lower_file_leaves_a_whiteout(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/f", "x");
	tree_mount(d, "volatile");
	tree_get(d, "dir/f");
	assert_int_equal(unlink_in(d, "dir", "f"), 0);
	assert_true(is_whiteout(d, "upper/dir/f"));
	assert_null(tree_look(d, "dir/f"));
	assert_int_equal(unlink_in(d, "dir", "f"), -ENOENT);
	tree_unmount(d);
	tree_mount(d, "volatile");
	assert_null(tree_look(d, "dir/f"));
}

static void test_remove__upper_file_leaves_nothing(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, "volatile");
	tree_make(d, "", "f", S_IFREG | 0644);
	assert_int_equal(unlink_in(d, "", "f"), 0);
	assert_false(tree_is_there(d, "upper/f"));
	tree_expect_names(d, "", "");
}

static void test_remove__file_of_both_leaves_a_whiteout(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "f"), "y", 1, 0), 0);
	assert_int_equal(unlink_in(d, "", "f"), 0);
	assert_true(is_whiteout(d, "upper/f"));
	assert_int_equal(work_entries(d), 0);
}

static void test_remove__unlinked_partial_file_leaves_no_map_entry(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "new", 3, 9000), 0);
	memcpy(data + 9000, "new", 3);
	assert_int_equal(unlink_in(d, "", "f"), 0);
	tree_expect_inode(d, i, data, BIG);
	assert_int_equal(mapfile_count(d->t->map), 1);
	tree_forget(d, i);
	assert_int_equal(mapfile_count(d->t->map), 0);
	free(data);
}

static void test_remove__one_name_of_a_hard_link_keeps_the_map_entry(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct inode *i;
	struct stat st;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(create_link(d->t, i, d->t->root, "link", &st), 0);
	assert_int_equal(cow_write(d->t, i, "new", 3, 9000), 0);
	memcpy(data + 9000, "new", 3);
	assert_int_equal(unlink_in(d, "", "f"), 0);
	tree_forget(d, i);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "link", data, BIG);
	free(data);
}

/* An append-only directory takes no name away, whoever asks. */
static bool set_append_only(struct tree_dirs *d, const char *rel, bool is_on)
{
	int fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY), flags = 0;
	bool is_done = fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0;

	flags = is_on ? flags | FS_APPEND_FL : flags & ~FS_APPEND_FL;
	is_done = is_done && ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
	close(fd);
	return is_done;
}

static void test_remove__unlink_that_fails_keeps_the_file_whole(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/dir/f", BIG, 1);
	struct inode *i;
	int r;

	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "new", 3, 9000), 0);
	memcpy(data + 9000, "new", 3);
	if (!set_append_only(d, "upper/dir", true)) {
		free(data);
		skip();
	}
	r = unlink_in(d, "dir", "f");
	set_append_only(d, "upper/dir", false);
	assert_int_equal(r, -EPERM);
	tree_forget(d, i);
	tree_expect(d, "dir/f", data, BIG);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "dir/f", data, BIG);
	free(data);
}

static void test_remove__rename_over_a_file_that_fails_keeps_it_whole(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/dir/f", BIG, 1);
	struct inode *i, *dir;
	int r;

	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	dir = tree_get(d, "dir");
	tree_make(d, "", "other", S_IFREG | 0644);
	assert_int_equal(cow_write(d->t, i, "new", 3, 9000), 0);
	memcpy(data + 9000, "new", 3);
	if (!set_append_only(d, "upper/dir", true)) {
		free(data);
		skip();
	}
	r = rename_entry(d->t, d->t->root, "other", dir, "f", 0);
	set_append_only(d, "upper/dir", false);
	assert_int_equal(r, -EPERM);
	tree_forget(d, i);
	tree_expect(d, "dir/f", data, BIG);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "dir/f", data, BIG);
	free(data);
}

static void test_remove__directory_must_look_empty(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/f", "x");
	tree_mount(d, "volatile");
	tree_get(d, "dir");
	tree_get(d, "dir/f");
	assert_int_equal(remove_dir(d->t, d->t->root, "dir"), -ENOTEMPTY);
	assert_int_equal(unlink_in(d, "dir", "f"), 0);
	assert_int_equal(remove_dir(d->t, d->t->root, "dir"), 0);
	assert_true(is_whiteout(d, "upper/dir"));
	assert_int_equal(work_entries(d), 0);
}

static void test_remove__upper_directory_with_whiteouts_in_it_goes(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_whiteout(d, "upper/dir/stale");
	tree_put_text(d, "upper/dir/.wh.other", "");
	tree_mount(d, "volatile");
	tree_get(d, "dir");
	assert_int_equal(remove_dir(d->t, d->t->root, "dir"), 0);
	assert_false(tree_is_there(d, "upper/dir"));
	assert_int_equal(work_entries(d), 0);
}

static void test_remove__many_whiteouts_share_one_inode(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;

	for (unsigned k = 0; k < 20; k++) {
		char rel[32];

		snprintf(rel, sizeof(rel), "lower/f%u", k);
		tree_put_text(d, rel, "");
	}
	tree_mount(d, "volatile");
	for (unsigned k = 0; k < 20; k++) {
		char name[32];

		snprintf(name, sizeof(name), "f%u", k);
		tree_get(d, name);
		assert_int_equal(unlink_in(d, "", name), 0);
	}
	assert_int_equal(fstatat(d->s.fd, "upper/f7", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(st.st_nlink >= 20);
	tree_expect_names(d, "", "");
}

static void test_remove__named_whiteouts_hide_as_well(void **state)
{
	struct tree_dirs *d = *state;

	setenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT", "1", 1);
	tree_put_text(d, "lower/f", "x");
	tree_put_text(d, "lower/g", "x");
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "g"), "y", 1, 0), 0);
	tree_get(d, "f");
	assert_int_equal(unlink_in(d, "", "f"), 0);
	assert_int_equal(unlink_in(d, "", "g"), 0);
	unsetenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT");
	assert_true(tree_is_there(d, "upper/.wh.f"));
	assert_true(tree_is_there(d, "upper/.wh.g"));
	assert_false(tree_is_there(d, "upper/g"));
	tree_expect_names(d, "", "");
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "");
}

/* The kernel may know another type by the name: as it was before a rollback. */
static void test_remove__name_of_another_type_than_the_kernel_knows_stays(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "lower/dir/of/f", "lower");
	tree_put_text(d, "upper/both/f", "upper");
	tree_put_dir(d, "lower/both");
	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(unlink_in(d, "", "dir"), -EISDIR);
	assert_int_equal(unlink_in(d, "", "both"), -EISDIR);
	/* Also where it is known already. */
	i = tree_get(d, "dir/of");
	assert_int_equal(unlink_in(d, "dir", "of"), -EISDIR);
	tree_forget(d, i);
	assert_int_equal(remove_dir(d->t, d->t->root, "f"), -ENOTDIR);
	tree_expect_text(d, "dir/of/f", "lower");
	tree_expect_text(d, "both/f", "upper");
	tree_expect_text(d, "f", "x");
	assert_int_equal(work_entries(d), 0);
}

static void test_remove__read_only_mount_refuses(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/f", "text");
	tree_put_dir(d, "lower/dir/sub");
	tree_mount(d, "ro");
	assert_int_equal(unlink_in(d, "dir", "f"), -EROFS);
	assert_int_equal(unlink_in(d, "dir", "none"), -EROFS);
	assert_int_equal(remove_dir(d->t, tree_get(d, "dir"), "sub"), -EROFS);
	tree_expect_names(d, "dir", "f sub");
	tree_expect_text(d, "dir/f", "text");
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_remove__lower_file_leaves_a_whiteout),
		row(test_remove__upper_file_leaves_nothing),
		row(test_remove__file_of_both_leaves_a_whiteout),
		row(test_remove__unlinked_partial_file_leaves_no_map_entry),
		row(test_remove__one_name_of_a_hard_link_keeps_the_map_entry),
		row(test_remove__unlink_that_fails_keeps_the_file_whole),
		row(test_remove__rename_over_a_file_that_fails_keeps_it_whole),
		row(test_remove__directory_must_look_empty),
		row(test_remove__upper_directory_with_whiteouts_in_it_goes),
		row(test_remove__name_of_another_type_than_the_kernel_knows_stays),
		row(test_remove__many_whiteouts_share_one_inode),
		row(test_remove__read_only_mount_refuses),
		row(test_remove__named_whiteouts_hide_as_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
