// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "union/metacopy_import.h"
#include "veneer/data/cow.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BIG 50000

/* upper/NAME as overlayfs leaves it when lower/a was changed in its attributes alone. */
static void put_metacopy(struct tree_dirs *d, const char *rel, off_t size, const char *redirect)
{
	int fd;

	tree_put_text(d, rel, "");
	fd = openat(d->s.fd, rel, O_RDWR);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fsetxattr(fd, "trusted.overlay.metacopy", "", 0, 0), 0);
	if (redirect)
		assert_int_equal(
			fsetxattr(fd, "trusted.overlay.redirect", redirect, strlen(redirect), 0),
			0);
	close(fd);
}

static void test_metacopy_import__metacopies_show_their_lower_file_and_can_be_written(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/a", BIG, 1);
	static const char *const names[] = { "a", "sibling", "dir/path" };

	put_metacopy(d, "upper/a", BIG, NULL);
	put_metacopy(d, "upper/sibling", BIG, "a");
	put_metacopy(d, "upper/dir/path", BIG, "/a");
	for (unsigned round = 0; round < 2; round++) {
		tree_mount(d, "volatile");
		for (size_t k = 0; k < 3; k++)
			tree_expect(d, names[k], data, BIG);
		tree_unmount(d);
		assert_true(tree_is_partial(d, "upper/dir/path"));
	}
	tree_mount(d, "volatile");
	for (size_t k = 0; k < 3; k++) {
		struct inode *i = tree_get(d, names[k]);

		assert_int_equal(cow_write(d->t, i, "new", 3, 20000), 0);
		tree_forget(d, i);
	}
	memcpy(data + 20000, "new", 3);
	tree_unmount(d);
	tree_mount(d, "volatile");
	for (size_t k = 0; k < 3; k++)
		tree_expect(d, names[k], data, BIG);
	free(data);
}

static void test_metacopy_import__metacopy_that_fits_nothing_is_damaged_and_stays(void **state)
{
	struct tree_dirs *d = *state;
	static const char *const names[] = { "size", "gone", "dir", "way", "bad", "outside" };

	free(tree_put_pattern(d, "lower/a", BIG, 1));
	tree_put_text(d, "lower/d/f", "");
	put_metacopy(d, "upper/size", BIG + 1, "a");
	put_metacopy(d, "upper/gone", BIG, NULL);
	put_metacopy(d, "upper/dir", BIG, "/d");
	put_metacopy(d, "upper/way", BIG, "/a/b");
	put_metacopy(d, "upper/bad", BIG, "/../a");
	put_metacopy(d, "upper/outside", BIG, "..");
	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
		struct inode *i = tree_get(d, names[k]);

		assert_true(i->is_damaged);
		assert_int_equal(cow_write(d->t, i, "x", 1, 0), -EIO);
		tree_forget(d, i);
	}
	tree_unmount(d);
	assert_false(tree_is_partial(d, "upper/size"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_metacopy_import__metacopies_show_their_lower_file_and_can_be_written),
		row(test_metacopy_import__metacopy_that_fits_nothing_is_damaged_and_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
