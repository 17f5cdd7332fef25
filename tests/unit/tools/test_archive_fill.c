// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/archive_fill.h"
#include "tools/archive_library.h"

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_free) CALL(archive_entry_gid) CALL(archive_entry_mode) \
	CALL(archive_entry_mtime) CALL(archive_entry_mtime_nsec) CALL(archive_entry_new) \
	CALL(archive_entry_rdev) CALL(archive_entry_symlink) CALL(archive_entry_uid) \
	CALL(archive_entry_xattr_next) CALL(archive_entry_xattr_reset)
/* clang-format on */

ARCHIVE_LIBRARY_LOADER(CALLS)

static struct archive_entry *make(void)
{
	assert_int_equal(load(), 0);
	return lib.archive_entry_new();
}

static void test_archive_fill__stat_is_taken_over_and_old_times_lose_their_fraction(void **state)
{
	struct stat st = { .st_mode = S_IFREG | 04755,
			   .st_uid = 4000000000u,
			   .st_gid = 7,
			   .st_rdev = 5,
			   .st_mtim = { 1000, 999999999 } };
	struct archive_entry *e = make();

	(void)state;
	assert_int_equal(archive_fill_stat(e, &st), 0);
	assert_int_equal(lib.archive_entry_mode(e), S_IFREG | 04755);
	assert_int_equal(lib.archive_entry_uid(e), 4000000000u);
	assert_int_equal(lib.archive_entry_gid(e), 7);
	assert_int_equal(lib.archive_entry_mtime_nsec(e), 999999999);
	/* Of a device alone. */
	assert_int_equal(lib.archive_entry_rdev(e), 0);
	st.st_mode = S_IFCHR | 0600;
	st.st_mtim.tv_sec = -5;
	assert_int_equal(archive_fill_stat(e, &st), 0);
	assert_int_equal(lib.archive_entry_rdev(e), 5);
	assert_int_equal(lib.archive_entry_mtime(e), -5);
	assert_int_equal(lib.archive_entry_mtime_nsec(e), 0);
	lib.archive_entry_free(e);
}

static void test_archive_fill__attributes_of_the_host_and_of_layers_stay_behind(void **state)
{
	struct archive_entry *e = make();
	struct tree_dirs *d = *state;
	const char *name;
	const void *value;
	struct stat st;
	unsigned n = 0;
	size_t size;
	int fd;

	tree_put_text(d, "upper/file", "x");
	fd = openat(d->s.fd, "upper/file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(fsetxattr(fd, "user.kept", "value", 5, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.empty", "", 0, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.veneer.partial", "mark", 4, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(archive_fill_xattrs(e, fd, &st, false, NULL), 0);
	lib.archive_entry_xattr_reset(e);
	while (lib.archive_entry_xattr_next(e, &name, &value, &size) == 0) {
		if (!strcmp(name, "user.kept")) {
			assert_int_equal(size, 5);
			assert_memory_equal(value, "value", 5);
			n++;
		} else {
			assert_string_equal(name, "user.empty");
			assert_int_equal(size, 0);
			n++;
		}
	}
	assert_int_equal(n, 2);
	close(fd);
	assert_true(archive_fill_xattrs(e, -1, &st, false, NULL) < 0);
	lib.archive_entry_free(e);
}

static void test_archive_fill__target_of_a_link(void **state)
{
	struct archive_entry *e = make();
	struct image_entry *found;
	struct tree_dirs *d = *state;

	assert_int_equal(symlinkat("some/target", d->s.fd, "lower/link"), 0);
	tree_put_text(d, "lower/file", "x");
	tree_mount(d, "volatile");
	assert_int_equal(image_lookup_path(d->t->image, "link", &found), 0);
	assert_int_equal(archive_fill_target(e, d->t->image, found), 0);
	assert_string_equal(lib.archive_entry_symlink(e), "some/target");
	assert_int_equal(image_lookup_path(d->t->image, "file", &found), 0);
	assert_true(archive_fill_target(e, d->t->image, found) < 0);
	lib.archive_entry_free(e);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_archive_fill__stat_is_taken_over_and_old_times_lose_their_fraction),
		row(test_archive_fill__attributes_of_the_host_and_of_layers_stay_behind),
		row(test_archive_fill__target_of_a_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
