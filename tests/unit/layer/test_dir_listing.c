// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/dir_listing.h"

#include <dirent.h>
#include <sys/sysmacros.h>

static void read_dir(struct tree_dirs *d, const char *rel, struct dir_listing *l)
{
	int fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY);

	assert_true(fd >= 0);
	assert_int_equal(dir_listing_read(fd, l), 0);
	close(fd);
}

static const struct dir_listing_entry *find(const struct dir_listing *l, const char *name)
{
	for (size_t k = 0; k < l->n; k++)
		if (!strcmp(dir_listing_name(l, &l->entries[k]), name))
			return &l->entries[k];
	return NULL;
}

static void test_dir_listing__every_type_is_told(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(dir_listing_release) struct dir_listing l;
	struct stat st;

	tree_put_text(d, "l/file", "");
	tree_put_dir(d, "l/dir");
	assert_int_equal(symlinkat("x", d->s.fd, "l/link"), 0);
	assert_int_equal(mkfifoat(d->s.fd, "l/fifo", 0600), 0);
	assert_int_equal(mknodat(d->s.fd, "l/null", S_IFCHR | 0600, makedev(1, 3)), 0);
	read_dir(d, "l", &l);
	assert_int_equal(l.n, 5);
	assert_int_equal(find(&l, "file")->type, DT_REG);
	assert_int_equal(find(&l, "dir")->type, DT_DIR);
	assert_int_equal(find(&l, "link")->type, DT_LNK);
	assert_int_equal(find(&l, "fifo")->type, DT_FIFO);
	assert_int_equal(find(&l, "null")->type, DT_CHR);
	assert_false(find(&l, "null")->is_whiteout);
	assert_int_equal(fstatat(d->s.fd, "l/file", &st, 0), 0);
	assert_int_equal(find(&l, "file")->ino, st.st_ino);
	assert_false(l.is_opaque);
}

static void test_dir_listing__both_forms_of_whiteouts_are_told_apart(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(dir_listing_release) struct dir_listing l;

	tree_put_whiteout(d, "l/device");
	tree_put_text(d, "l/.wh.named", "");
	read_dir(d, "l", &l);
	assert_int_equal(l.n, 2);
	assert_true(find(&l, "device")->is_whiteout);
	assert_false(find(&l, "device")->is_hiding);
	assert_true(find(&l, "named")->is_hiding);
	assert_false(find(&l, "named")->is_whiteout);
}

static void test_dir_listing__reserved_names_are_left_out(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(dir_listing_release) struct dir_listing l;

	tree_put_text(d, "l/.wh..wh.veneer", "");
	tree_put_text(d, "l/.wh..wh.aufs", "");
	tree_put_text(d, "l/.wh..wh..opq", "");
	read_dir(d, "l", &l);
	assert_int_equal(l.n, 0);
	assert_true(l.is_opaque);
}

static void test_dir_listing__empty_directory_has_none(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(dir_listing_release) struct dir_listing l;

	tree_put_dir(d, "l");
	read_dir(d, "l", &l);
	assert_int_equal(l.n, 0);
}

static void test_dir_listing__large_directory_is_read_whole_and_again(void **state)
{
	struct tree_dirs *d = *state;
	char rel[NAME_MAX + 16];
	int fd;

	for (unsigned k = 0; k < 1000; k++) {
		snprintf(rel, sizeof(rel), "l/%u-%0200u", k, k);
		tree_put_text(d, rel, "");
	}
	fd = openat(d->s.fd, "l", O_RDONLY | O_DIRECTORY);
	for (unsigned round = 0; round < 2; round++) {
		_cleanup_(dir_listing_release) struct dir_listing l;

		assert_int_equal(dir_listing_read(fd, &l), 0);
		assert_int_equal(l.n, 1000);
	}
	close(fd);
}

static void test_dir_listing__file_is_no_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct dir_listing l;
	int fd;

	tree_put_text(d, "l/f", "");
	fd = openat(d->s.fd, "l/f", O_RDONLY);
	assert_int_equal(dir_listing_read(fd, &l), -ENOTDIR);
	dir_listing_release(&l);
	close(fd);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_dir_listing__every_type_is_told),
		row(test_dir_listing__both_forms_of_whiteouts_are_told_apart),
		row(test_dir_listing__reserved_names_are_left_out),
		row(test_dir_listing__empty_directory_has_none),
		row(test_dir_listing__large_directory_is_read_whole_and_again),
		row(test_dir_listing__file_is_no_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
