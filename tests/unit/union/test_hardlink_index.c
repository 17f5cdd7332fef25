// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copyup.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/union/hardlink_index.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_link(struct tree_dirs *d, const char *from, const char *to)
{
	assert_int_equal(linkat(d->s.fd, from, d->s.fd, to, 0), 0);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The places under which the lower file that is seen at path is seen, "dir/name dir/name",
 * sorted. */
static void expect_places(struct tree_dirs *d, const char *path, const char *want)
{
	struct inode *i = tree_get(d, path);
	char *all[32], line[1024] = "";
	struct hardlink_set set;

	assert_int_equal(hardlink_index_find(d->t, i->lower, &set), 0);
	assert_true(set.n <= 32);
	for (size_t k = 0; k < set.n; k++)
		all[k] = inode_name_path(d->t, set.v[k].dir, set.v[k].name);
	qsort(all, set.n, sizeof(*all), compare);
	for (size_t k = 0; k < set.n; k++) {
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s", k ? " " : "",
			 all[k]);
		free(all[k]);
	}
	hardlink_index_set_release(d->t, &set);
	tree_forget(d, i);
	assert_string_equal(line, want);
}

static void put_four_names(struct tree_dirs *d)
{
	tree_put_text(d, "lower/a", "text");
	tree_put_text(d, "lower/p/q/alone", "");
	tree_put_text(d, "lower/z/alone", "");
	make_link(d, "lower/a", "lower/b");
	make_link(d, "lower/a", "lower/p/q/c");
	make_link(d, "lower/a", "lower/z/d");
}

static void test_hardlink_index__names_side_by_side_and_far_apart_are_found(void **state)
{
	struct tree_dirs *d = *state;

	put_four_names(d);
	tree_put_text(d, "lower/x", "");
	make_link(d, "lower/x", "lower/y");
	tree_mount(d, "volatile");
	expect_places(d, "x", "x y");
	expect_places(d, "a", "a b p/q/c z/d");
	expect_places(d, "p/q/c", "a b p/q/c z/d");
	expect_places(d, "p/q/alone", "p/q/alone");
}

static void test_hardlink_index__equal_numbers_in_different_layers_are_different_files(void **state)
{
	struct tree_dirs *d = *state;

	tree_layers(d, "top:lower");
	tree_put_text(d, "lower/a", "");
	make_link(d, "lower/a", "lower/b");
	make_link(d, "lower/a", "top/c");
	tree_mount(d, "volatile");
	expect_places(d, "a", "a b");
	expect_places(d, "c", "c");
}

static void test_hardlink_index__hidden_names_and_replaced_directories_are_left_out(void **state)
{
	struct tree_dirs *d = *state;

	put_four_names(d);
	tree_put_text(d, "upper/.wh.b", "");
	tree_put_text(d, "upper/z/.wh..wh..opq", "");
	tree_mount(d, "volatile");
	expect_places(d, "a", "a p/q/c");
}

static void test_hardlink_index__renamed_directories_are_followed_also_after_a_remount(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *p, *z;

	put_four_names(d);
	tree_mount(d, "volatile");
	p = tree_get(d, "p");
	z = tree_get(d, "z");
	tree_forget(d, tree_get(d, "p/q"));
	assert_int_equal(rename_entry(d->t, p, "q", z, "moved", 0), 0);
	assert_int_equal(rename_entry(d->t, d->t->root, "z", p, "z", 0), 0);
	tree_forget(d, p);
	tree_forget(d, z);
	expect_places(d, "a", "a b p/z/d p/z/moved/c");
	tree_unmount(d);
	tree_mount(d, "volatile");
	expect_places(d, "a", "a b p/z/d p/z/moved/c");
	expect_places(d, "p/z/moved/c", "a b p/z/d p/z/moved/c");
}

static void test_hardlink_index__copied_up_file_has_no_lower_names_left(void **state)
{
	struct tree_dirs *d = *state;
	struct hardlink_set set;
	struct inode *i;

	put_four_names(d);
	tree_mount(d, "volatile");
	i = tree_get(d, "z/d");
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(hardlink_index_find(d->t, i->lower, &set), 0);
	assert_int_equal(set.n, 0);
	hardlink_index_set_release(d->t, &set);
	tree_forget(d, i);
	assert_int_equal(tree_stat(d, "p/q/c").st_nlink, 4);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_hardlink_index__names_side_by_side_and_far_apart_are_found),
		row(test_hardlink_index__equal_numbers_in_different_layers_are_different_files),
		row(test_hardlink_index__hidden_names_and_replaced_directories_are_left_out),
		row(test_hardlink_index__renamed_directories_are_followed_also_after_a_remount),
		row(test_hardlink_index__copied_up_file_has_no_lower_names_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
