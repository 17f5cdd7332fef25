// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/attr.h"
#include "veneer/cow.h"
#include "veneer/lookup.h"
#include "veneer/remove.h"

#include <dirent.h>

#define BIG 50000

static void set_lower_attr(struct tree_dirs *d, const char *rel, const char *name,
			   const char *value)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", d->s.path, rel);
	assert_int_equal(lsetxattr(path, name, value, strlen(value), 0), 0);
}

static void test_attr__change_of_a_large_lower_file_copies_no_data(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	struct inode *i;
	struct stat st;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(attr_chmod(d->t, i, 0600), 0);
	assert_int_equal(attr_chown(d->t, i, 5, (gid_t)-1), 0);
	assert_int_equal(attr_utimens(d->t, i, times), 0);
	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	assert_true(st.st_blocks <= 8);
	st = tree_stat(d, "f");
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, 5);
	assert_int_equal(st.st_gid, 0);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 2);
	/* It occupies what its bytes occupy. */
	assert_true(st.st_blocks >= BIG / 512);
	tree_expect(d, "f", data, BIG);
	free(data);
}

static void test_attr__of_other_types_can_be_changed(void **state)
{
	struct tree_dirs *d = *state;
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };

	tree_put_dir(d, "lower/dir");
	assert_int_equal(mkfifoat(d->s.fd, "lower/fifo", 0600), 0);
	assert_int_equal(symlinkat("x", d->s.fd, "lower/link"), 0);
	tree_mount(d, "volatile");
	assert_int_equal(attr_chmod(d->t, tree_get(d, "dir"), 01777), 0);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "fifo"), 0640), 0);
	assert_int_equal(attr_chown(d->t, tree_get(d, "link"), 5, 6), 0);
	assert_int_equal(attr_utimens(d->t, tree_get(d, "link"), times), 0);
	assert_int_equal(tree_stat(d, "dir").st_mode & 07777, 01777);
	assert_int_equal(tree_stat(d, "fifo").st_mode & 07777, 0640);
	assert_int_equal(tree_stat(d, "link").st_uid, 5);
	assert_int_equal(tree_stat(d, "link").st_mtim.tv_sec, 2000);
}

static void test_attr__set_id_bits_are_killed_as_by_the_kernel(void **state)
{
	static const mode_t rows[][2] = {
		{ 06755, 0755 }, { 02745, 0745 }, { 04644, 0644 }, { 02755, 0755 }, { 0644, 0644 }
	};
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		assert_int_equal(attr_chmod(d->t, i, rows[k][0]), 0);
		assert_int_equal(attr_kill_setid(d->t, i, NULL, NULL), 0);
		if ((tree_stat(d, "f").st_mode & 07777) != rows[k][1])
			fail_msg("%04o became %04o", rows[k][0], tree_stat(d, "f").st_mode & 07777);
	}
}

static void test_attr__killing_set_id_bits_that_are_not_there_copies_nothing_up(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(attr_kill_setid(d->t, tree_get(d, "f"), NULL, NULL), 0);
	assert_false(tree_is_there(d, "upper/f"));
}

static void test_attr__extended_attributes_come_along_and_change(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	char value[16], list[256];

	tree_put_text(d, "lower/f", "x");
	set_lower_attr(d, "lower/f", "user.a", "one");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, sizeof(value)), 3);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", NULL, 0), 3);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, 2), -ERANGE);
	assert_int_equal(attr_getxattr(d->t, i, "user.none", value, 2), -ENODATA);
	assert_int_equal(attr_setxattr(d->t, i, "user.b", "2", 1, 0), 0);
	assert_int_equal(attr_setxattr(d->t, i, "user.b", "2", 1, XATTR_CREATE), -EEXIST);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, sizeof(value)), 3);
	assert_memory_equal(value, "one", 3);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, NULL, 0), 14);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, 13), -ERANGE);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, sizeof(list)), 14);
	assert_int_equal(attr_removexattr(d->t, i, "user.a"), 0);
	assert_int_equal(attr_removexattr(d->t, i, "user.a"), -ENODATA);
}

static void test_attr__names_of_unions_are_hidden(void **state)
{
	static const char *const names[] = { "user.overlay.opaque", "user.veneer.partial",
					     "user.fuseoverlayfs.x", "trusted.overlay.opaque" };
	struct tree_dirs *d = *state;
	struct inode *i;
	char list[256];

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	assert_true(tree_is_partial(d, "upper/f"));
	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
		assert_int_equal(attr_getxattr(d->t, i, names[k], NULL, 0), -ENODATA);
		assert_int_equal(attr_setxattr(d->t, i, names[k], "y", 1, 0), -EPERM);
		assert_int_equal(attr_removexattr(d->t, i, names[k]), -EPERM);
	}
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, sizeof(list)), 0);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, NULL, 0), 0);
}

static void test_attr__removing_what_is_not_there_copies_nothing_up(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(attr_removexattr(d->t, tree_get(d, "f"), "user.none"), -ENODATA);
	assert_false(tree_is_there(d, "upper/f"));
}

static void test_attr__read_only_mount_refuses_changes(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "ro");
	i = tree_get(d, "f");
	assert_int_equal(attr_chmod(d->t, i, 0600), -EROFS);
	assert_int_equal(attr_setxattr(d->t, i, "user.a", "", 0, 0), -EROFS);
	assert_int_equal(cow_write(d->t, i, "y", 1, 0), -EROFS);
	assert_int_equal(cow_truncate(d->t, i, 0), -EROFS);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	tree_expect_text(d, "f", "x");
}

static void test_attr__of_an_unlinked_lower_file_can_be_changed(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	assert_int_equal(attr_chmod(d->t, i, 0600), 0);
	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_null(tree_look(d, "f"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_attr__change_of_a_large_lower_file_copies_no_data),
		row(test_attr__of_other_types_can_be_changed),
		row(test_attr__set_id_bits_are_killed_as_by_the_kernel),
		row(test_attr__killing_set_id_bits_that_are_not_there_copies_nothing_up),
		row(test_attr__extended_attributes_come_along_and_change),
		row(test_attr__names_of_unions_are_hidden),
		row(test_attr__removing_what_is_not_there_copies_nothing_up),
		row(test_attr__read_only_mount_refuses_changes),
		row(test_attr__of_an_unlinked_lower_file_can_be_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
