// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/data/copyup.h"
#include "veneer/data/rename.h"
#include "veneer/layer/origin_xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static void test_origin_xattr__written_path_is_read_again(void **state)
{
	static const struct whiteout_style styles[] = {
		{ .has_trusted = true, .has_user_attr = true }, { .has_user_attr = true }
	};
	struct tree_dirs *d = *state;
	char path[PATH_MAX];

	for (size_t k = 0; k < 2; k++) {
		char rel[8] = "lower/x";
		int fd;

		rel[6] = (char)('x' + k);
		tree_put_text(d, rel, "");
		fd = openat(d->s.fd, rel, O_RDONLY);
		assert_int_equal(origin_xattr_read(fd, "", false, path), 0);
		origin_xattr_write(&styles[k], fd, "a/b");
		assert_int_equal(origin_xattr_read(fd, "", false, path), 1);
		assert_string_equal(path, "a/b");
		assert_int_equal(origin_xattr_read(d->s.fd, rel, false, path), 1);
		close(fd);
	}
}

static void test_origin_xattr__what_is_no_plain_path_is_ignored(void **state)
{
	static const char *const bad[] = { "", "/", "..", "/etc/passwd", "a/../b", "a//b" };
	struct tree_dirs *d = *state;
	char path[PATH_MAX];
	int fd;

	tree_put_text(d, "lower/x", "");
	fd = openat(d->s.fd, "lower/x", O_RDONLY);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		assert_int_equal(fsetxattr(fd, ORIGIN_XATTR_USER_ATTR, bad[k], strlen(bad[k]), 0),
				 0);
		assert_int_equal(origin_xattr_read(fd, "", false, path), 0);
	}
	close(fd);
}

/* As root; an ordinary user cannot note it for these (doc/internals/limits.md). */
static void test_origin_xattr__symlinks_and_fifos_keep_their_number(void **state)
{
	static const char *const names[] = { "link", "fifo" };
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/f", "");
	assert_int_equal(symlinkat("target", d->s.fd, "lower/link"), 0);
	assert_int_equal(mkfifoat(d->s.fd, "lower/fifo", 0600), 0);
	for (size_t k = 0; k < 2; k++) {
		struct inode *dir, *i;
		uint64_t ino;

		tree_mount(d, "volatile");
		ino = tree_stat(d, names[k]).st_ino;
		dir = tree_get(d, "dir");
		i = tree_get(d, names[k]);
		assert_int_equal(rename_entry(d->t, d->t->root, names[k], dir, names[k], 0), 0);
		tree_forget(d, i);
		tree_forget(d, dir);
		tree_unmount(d);
		tree_mount(d, "volatile");
		assert_int_equal(tree_stat(d, k ? "dir/fifo" : "dir/link").st_ino, ino);
		tree_unmount(d);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_origin_xattr__written_path_is_read_again),
		row(test_origin_xattr__what_is_no_plain_path_is_ignored),
		row(test_origin_xattr__symlinks_and_fifos_keep_their_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
