// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/whiteout.h"

#include <sys/sysmacros.h>

static const struct whiteout_style by_device = { .has_device = true,
						 .has_trusted = true,
						 .has_user_attr = true };
static const struct whiteout_style by_name = { .has_user_attr = true };

static void test_whiteout__names_are_told_apart(void **state)
{
	static const struct {
		const char *name;
		enum whiteout_name kind;
	} rows[] = {
		{ "plain", WHITEOUT_PLAIN },	     { ".wh", WHITEOUT_PLAIN },
		{ ".whx", WHITEOUT_PLAIN },	     { "a.wh.b", WHITEOUT_PLAIN },
		{ ".wh.a", WHITEOUT_HIDES },	     { ".wh..a", WHITEOUT_HIDES },
		{ ".wh..wh", WHITEOUT_HIDES },	     { ".wh.", WHITEOUT_META },
		{ ".wh..", WHITEOUT_META },	     { ".wh...", WHITEOUT_META },
		{ ".wh..wh..opq", WHITEOUT_OPAQUE }, { ".wh..wh..opq2", WHITEOUT_META },
		{ ".wh..wh.plnk", WHITEOUT_META },   { ".wh..wh.veneer", WHITEOUT_META },
		{ ".wh....", WHITEOUT_HIDES },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++)
		if (whiteout_name_kind(rows[k].name) != rows[k].kind)
			fail_msg("%s is taken for %d", rows[k].name,
				 whiteout_name_kind(rows[k].name));
}

static void test_whiteout__attributes_of_unions_are_reserved(void **state)
{
	(void)state;
	assert_true(whiteout_is_reserved_attr("trusted.overlay.opaque"));
	assert_true(whiteout_is_reserved_attr("user.overlay.redirect"));
	assert_true(whiteout_is_reserved_attr("user.fuseoverlayfs.origin"));
	assert_true(whiteout_is_reserved_attr("user.veneer.partial"));
	assert_false(whiteout_is_reserved_attr("user.overlay"));
	assert_false(whiteout_is_reserved_attr("user.veneers"));
	assert_false(whiteout_is_reserved_attr("security.capability"));
}

static int open_dir(struct tree_dirs *d, const char *rel)
{
	int fd;

	tree_put_dir(d, rel);
	fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void test_whiteout__device_form_is_a_device_of_number_zero(void **state)
{
	struct tree_dirs *d = *state;
	int fd = open_dir(d, "w");
	struct stat st;

	assert_int_equal(whiteout_make(&by_device, fd, "x"), 0);
	assert_int_equal(fstatat(fd, "x", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(whiteout_is_device(st.st_mode, st.st_rdev));
	assert_false(whiteout_is_device(S_IFCHR, makedev(1, 3)));
	assert_false(whiteout_is_device(S_IFBLK, 0));
	assert_int_equal(whiteout_remove(fd, "x"), 0);
	assert_false(tree_is_there(d, "w/x"));
	close(fd);
}

static void test_whiteout__named_form_stands_beside_the_name(void **state)
{
	struct tree_dirs *d = *state;
	int fd = open_dir(d, "w");

	assert_int_equal(whiteout_make(&by_name, fd, "x"), 0);
	assert_true(tree_is_there(d, "w/.wh.x"));
	assert_false(tree_is_there(d, "w/x"));
	assert_int_equal(whiteout_remove(fd, "x"), 0);
	assert_false(tree_is_there(d, "w/.wh.x"));
	close(fd);
}

static void test_whiteout__named_form_of_a_long_name_is_enametoolong(void **state)
{
	struct tree_dirs *d = *state;
	int fd = open_dir(d, "w");
	char name[NAME_MAX + 1];

	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	assert_int_equal(whiteout_make(&by_name, fd, name), -ENAMETOOLONG);
	assert_int_equal(whiteout_make(&by_device, fd, name), 0);
	assert_int_equal(whiteout_remove(fd, name), 0);
	name[NAME_MAX - 4] = '\0';
	assert_int_equal(whiteout_make(&by_name, fd, name), 0);
	assert_int_equal(whiteout_remove(fd, name), 0);
	close(fd);
}

static void test_whiteout__remove_leaves_ordinary_files_and_absence_alone(void **state)
{
	struct tree_dirs *d = *state;
	int fd = open_dir(d, "w");

	tree_put_text(d, "w/f", "");
	assert_int_equal(whiteout_remove(fd, "f"), 0);
	assert_true(tree_is_there(d, "w/f"));
	assert_int_equal(whiteout_remove(fd, "none"), 0);
	close(fd);
}

static int kind(int fd)
{
	char redirect[PATH_MAX];

	return whiteout_dir_kind(fd, false, redirect);
}

static void test_whiteout__opaque_mark_is_recognised_in_each_form(void **state)
{
	static const char *const attrs[] = { "trusted.overlay.opaque", "user.overlay.opaque",
					     "user.fuseoverlayfs.opaque" };
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < 3; k++) {
		char rel[32];
		int fd;

		snprintf(rel, sizeof(rel), "w%zu", k);
		fd = open_dir(d, rel);
		assert_int_equal(kind(fd), WHITEOUT_DIR_MERGED);
		assert_int_equal(fsetxattr(fd, attrs[k], "n", 1, 0), 0);
		assert_int_equal(kind(fd), WHITEOUT_DIR_MERGED);
		assert_int_equal(fsetxattr(fd, attrs[k], "y", 1, 0), 0);
		assert_int_equal(kind(fd), WHITEOUT_DIR_OPAQUE);
		close(fd);
	}
}

static void test_whiteout__file_form_is_an_empty_file_with_an_attribute(void **state)
{
	static const char *const attrs[] = { "trusted.overlay.whiteout", "user.overlay.whiteout" };
	struct tree_dirs *d = *state;
	char redirect[PATH_MAX];
	bool has_files;
	int fd = open_dir(d, "w");

	tree_put_text(d, "w/full", "full");
	tree_put_text(d, "w/plain", "");
	for (size_t k = 0; k < 2; k++) {
		char rel[8];
		int f;

		snprintf(rel, sizeof(rel), "w/f%zu", k);
		tree_put_text(d, rel, "");
		f = openat(fd, rel + 2, O_RDONLY | O_CLOEXEC);
		assert_int_equal(fsetxattr(f, attrs[k], "", 0, 0), 0);
		close(f);
		assert_true(whiteout_is_file(fd, rel + 2));
		f = openat(fd, "full", O_RDONLY | O_CLOEXEC);
		assert_int_equal(fsetxattr(f, attrs[k], "", 0, 0), 0);
		close(f);
	}
	assert_false(whiteout_is_file(fd, "full"));
	assert_false(whiteout_is_file(fd, "plain"));
	assert_false(whiteout_is_file(fd, "none"));
	assert_int_equal(whiteout_dir_marks(fd, false, redirect, &has_files), WHITEOUT_DIR_MERGED);
	assert_false(has_files);
	assert_int_equal(fsetxattr(fd, "user.overlay.opaque", "x", 1, 0), 0);
	assert_int_equal(whiteout_dir_marks(fd, false, redirect, &has_files), WHITEOUT_DIR_MERGED);
	assert_true(has_files);
	close(fd);
}

static void test_whiteout__opaque_mark_that_is_set_is_found_again(void **state)
{
	struct tree_dirs *d = *state;
	int a = open_dir(d, "a"), b = open_dir(d, "b");

	assert_int_equal(whiteout_set_opaque(&by_device, a), 0);
	assert_int_equal(kind(a), WHITEOUT_DIR_OPAQUE);
	assert_int_equal(whiteout_set_opaque(&by_name, b), 0);
	assert_int_equal(kind(b), WHITEOUT_DIR_OPAQUE);
	/* For readers that know only the file. */
	assert_true(tree_is_there(d, "b/" WHITEOUT_OPAQUE_NAME));
	close(a);
	close(b);
}

static void test_whiteout__redirect_is_read_in_both_forms(void **state)
{
	struct tree_dirs *d = *state;
	char redirect[PATH_MAX];
	int fd = open_dir(d, "w");

	assert_int_equal(fsetxattr(fd, "user.overlay.redirect", "sibling", 7, 0), 0);
	assert_int_equal(whiteout_dir_kind(fd, false, redirect), WHITEOUT_DIR_REDIRECTED);
	assert_string_equal(redirect, "sibling");
	assert_int_equal(fsetxattr(fd, "trusted.overlay.redirect", "/x/y", 4, 0), 0);
	assert_int_equal(whiteout_dir_kind(fd, false, redirect), WHITEOUT_DIR_REDIRECTED);
	assert_string_equal(redirect, "/x/y");
	assert_int_equal(fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(whiteout_dir_kind(fd, false, redirect), WHITEOUT_DIR_OPAQUE);
	close(fd);
}

static void test_whiteout__redirect_that_is_set_is_found_again(void **state)
{
	const struct whiteout_style *const styles[] = { &by_device, &by_name };
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < 2; k++) {
		char redirect[PATH_MAX], rel[8];
		int fd;

		snprintf(rel, sizeof(rel), "w%zu", k);
		fd = open_dir(d, rel);
		assert_int_equal(whiteout_set_redirect(styles[k], fd, "old/place"), 0);
		assert_int_equal(whiteout_dir_kind(fd, false, redirect), WHITEOUT_DIR_REDIRECTED);
		assert_string_equal(redirect, "/old/place");
		close(fd);
	}
}

static void test_whiteout__redirect_to_anything_but_a_plain_path_is_refused(void **state)
{
	static const char *const bad[] = { "/", "..",  "/../x", "/a/../b", "a/b",
					   ".", "/a/", "//a",	"/a//b" };
	struct tree_dirs *d = *state;
	char redirect[PATH_MAX];
	int fd = open_dir(d, "w");

	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		assert_int_equal(fsetxattr(fd, "user.overlay.redirect", bad[k], strlen(bad[k]), 0),
				 0);
		assert_int_equal(whiteout_dir_kind(fd, false, redirect), -EUCLEAN);
	}
	assert_int_equal(fsetxattr(fd, "user.overlay.redirect", "a\0b", 3, 0), 0);
	assert_int_equal(whiteout_dir_kind(fd, false, redirect), -EUCLEAN);
	assert_int_equal(fsetxattr(fd, "user.overlay.redirect", "", 0, 0), 0);
	assert_int_equal(whiteout_dir_kind(fd, false, redirect), -EUCLEAN);
	close(fd);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_whiteout__names_are_told_apart),
		row(test_whiteout__attributes_of_unions_are_reserved),
		row(test_whiteout__device_form_is_a_device_of_number_zero),
		row(test_whiteout__named_form_stands_beside_the_name),
		row(test_whiteout__named_form_of_a_long_name_is_enametoolong),
		row(test_whiteout__remove_leaves_ordinary_files_and_absence_alone),
		row(test_whiteout__opaque_mark_is_recognised_in_each_form),
		row(test_whiteout__file_form_is_an_empty_file_with_an_attribute),
		row(test_whiteout__opaque_mark_that_is_set_is_found_again),
		row(test_whiteout__redirect_is_read_in_both_forms),
		row(test_whiteout__redirect_that_is_set_is_found_again),
		row(test_whiteout__redirect_to_anything_but_a_plain_path_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
