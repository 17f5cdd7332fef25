// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/tools/du.h"

#define BIG ((size_t)256 * BLK_BYTES)

static struct du measure(struct tree_dirs *d)
{
	char path[PATH_MAX + 16];
	struct du du;

	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(du_layer(path, NULL, &du), 0);
	return du;
}

static void test_du__empty_layer_is_its_root(void **state)
{
	const struct du du = measure(*state);

	assert_int_equal(du.inodes, 1);
	assert_int_equal(du.data_bytes, 0);
	assert_int_equal(du.whiteouts, 0);
}

static void test_du__file_of_several_names_counts_once(void **state)
{
	struct tree_dirs *d = *state;
	struct du one, two;

	free(tree_put_pattern(d, "upper/file", BIG, 1));
	one = measure(d);
	assert_int_equal(one.inodes, 2);
	assert_true(one.data_bytes >= BIG);
	assert_int_equal(linkat(d->s.fd, "upper/file", d->s.fd, "upper/again", 0), 0);
	tree_put_dir(d, "upper/dir");
	assert_int_equal(linkat(d->s.fd, "upper/file", d->s.fd, "upper/dir/again", 0), 0);
	two = measure(d);
	assert_int_equal(two.data_bytes, one.data_bytes);
	assert_int_equal(two.inodes, 3);
}

static void test_du__whiteouts_are_no_inodes_in_either_dialect(void **state)
{
	struct tree_dirs *d = *state;
	struct du du;

	tree_put_whiteout(d, "upper/device");
	tree_put_text(d, "upper/.wh.name", "");
	tree_put_text(d, "upper/dir/.wh..wh..opq", "");
	du = measure(d);
	assert_int_equal(du.whiteouts, 2);
	assert_int_equal(du.inodes, 2);
}

static void test_du__partial_file_is_compared_with_a_whole_copy(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct du du;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	tree_forget(d, i);
	tree_unmount(d);
	du = measure(d);
	assert_int_equal(du.partial_files, 1);
	assert_true(du.partial_bytes < BIG / 2);
	assert_true(du.whole_bytes >= BIG);
	assert_true(du.map_bytes > 0);
	assert_int_equal(du.partial_bytes, du.data_bytes);
}

static void count(void *arg, size_t entries, size_t dirs)
{
	(void)entries, (void)dirs;
	++*(unsigned *)arg;
}

static void test_du__progress_and_errors(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 16];
	unsigned n = 0;
	const struct step step = { count, &n };
	struct du du;

	tree_put_text(d, "upper/dir/file", "x");
	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(du_layer(path, &step, &du), 0);
	assert_int_equal(n, 2);
	strcat(path, "/dir/file");
	assert_int_equal(du_layer(path, NULL, &du), -ENOTDIR);
	assert_int_equal(du_layer("/nowhere/at/all", NULL, &du), -ENOENT);
	assert_int_equal(du.inodes, 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_du__empty_layer_is_its_root),
		row(test_du__file_of_several_names_counts_once),
		row(test_du__whiteouts_are_no_inodes_in_either_dialect),
		row(test_du__partial_file_is_compared_with_a_whole_copy),
		row(test_du__progress_and_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
