// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/read.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"

#include <dirent.h>

static void expect_where(struct tree_dirs *d, const char *name, enum lookup_where where,
			 bool is_whiteout)
{
	struct lookup_state s;

	assert_int_equal(lookup_state(d->t, d->t->root, name, &s), 0);
	assert_int_equal(s.where, where);
	assert_int_equal(s.is_whiteout, is_whiteout);
}

static void test_lookup_find__upper_whiteout_and_lower_are_told_apart(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/low", "");
	tree_put_text(d, "lower/both", "lower");
	tree_put_text(d, "upper/both", "upper");
	tree_put_text(d, "upper/up", "");
	tree_put_text(d, "lower/gone", "");
	tree_put_whiteout(d, "upper/gone");
	tree_put_text(d, "lower/hidden", "");
	tree_put_text(d, "upper/.wh.hidden", "");
	tree_mount(d, "volatile");
	expect_where(d, "low", LOOKUP_LOWER, false);
	expect_where(d, "both", LOOKUP_UPPER, false);
	expect_where(d, "up", LOOKUP_UPPER, false);
	expect_where(d, "gone", LOOKUP_NOWHERE, true);
	expect_where(d, "hidden", LOOKUP_NOWHERE, true);
	expect_where(d, "none", LOOKUP_NOWHERE, false);
	expect_where(d, ".wh.hidden", LOOKUP_NOWHERE, false);
	expect_where(d, ".wh..wh.veneer", LOOKUP_NOWHERE, false);
	tree_expect_text(d, "both", "upper");
	tree_expect_names(d, "", "both low up");
}

static void test_lookup_find__damaged_partial_file_keeps_its_name_and_gives_no_bytes(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	char c;

	free(tree_put_pattern(d, "lower/big", 30000, 1));
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "big"), "x", 1, 5), 0);
	tree_unmount(d);
	assert_int_equal(utimensat(d->s.fd, "lower/big", NULL, 0), 0);
	tree_mount(d, "volatile");
	assert_int_equal(tree_stat(d, "big").st_size, 30000);
	i = tree_get(d, "big");
	assert_int_equal(read_file(d->t, i, &c, 1, 5), -EIO);
	assert_int_equal(read_file(d->t, i, &c, 1, 20000), -EIO);
	assert_int_equal(cow_write(d->t, i, "x", 1, 5), -EIO);
	assert_int_equal(cow_truncate(d->t, i, 100), -EIO);
	assert_int_equal(cow_fallocate(d->t, i, 0, 0, 100), -EIO);
	assert_int_equal(read_seek(d->t, i, 0, SEEK_DATA), -EIO);
	assert_int_equal(remove_file(d->t, d->t->root, "big"), 0);
	assert_null(tree_look(d, "big"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_lookup_find__upper_whiteout_and_lower_are_told_apart),
		row(test_lookup_find__damaged_partial_file_keeps_its_name_and_gives_no_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
