// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/union/upper.h"

#include <dirent.h>

static void start(struct tree_dirs *d)
{
	tree_put_text(d, "lower/dir/f", "text");
	tree_put_text(d, "lower/dir/sub/g", "more");
	tree_mount(d, "volatile");
}

static void test_inode_names__what_was_found_before_a_change_is_not_entered(void **state)
{
	const struct upper_dir_entry whiteout = { .is_whiteout = true, .is_below = true };
	struct inode_found found = { .type = DT_REG, .ino = 77 };
	struct tree_dirs *d = *state;
	struct inode *i;
	struct upper_dir *names;

	start(d);
	assert_int_equal(upper_listing(d->t, d->t->root, &names), 0);
	found.dir_version = inode_dir_version(d->t->root);
	assert_int_equal(upper_dir_set(names, "f", &whiteout), 0);
	assert_int_equal(inode_enter(d->t, d->t->root, "f", &found, &i), -EAGAIN);
	found.dir_version = inode_dir_version(d->t->root);
	assert_int_equal(inode_enter(d->t, d->t->root, "f", &found, &i), 0);
	upper_dir_remove(names, "f");
	/* A name that is known is the truth. */
	assert_int_equal(inode_enter(d->t, d->t->root, "f", &found, &i), 0);
	inode_unref(d->t, i);
	inode_unref(d->t, i);
}

static void test_inode_names__peek_finds_only_what_is_known(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *f, *got;

	start(d);
	dir = tree_get(d, "dir");
	assert_false(inode_peek(d->t, dir, "f", &got));
	f = tree_get(d, "dir/f");
	assert_true(inode_peek(d->t, dir, "f", &got));
	assert_ptr_equal(got, f);
	assert_int_equal(tree_lookups(d, f->id), 0);
	tree_forget(d, f);
	assert_ptr_equal(inode_get(d->t, got->id), got);
	inode_unref(d->t, got);
	assert_false(inode_peek(d->t, dir, "f", &got));
}

static void test_inode_names__names_move_swap_and_drop(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *f, *sub, *got;
	char *path;

	start(d);
	dir = tree_get(d, "dir");
	f = tree_get(d, "dir/f");
	sub = tree_get(d, "dir/sub");
	assert_int_equal(inode_move_name(d->t, dir, "f", sub, "moved"), 0);
	path = inode_path(d->t, f);
	assert_string_equal(path, "dir/sub/moved");
	free(path);
	assert_false(inode_peek(d->t, dir, "f", &got));
	tree_forget(d, tree_get(d, "dir/sub/g"));
	got = tree_get(d, "dir/sub/g");
	assert_int_equal(inode_swap_names(d->t, sub, "g", sub, "moved"), 0);
	path = inode_path(d->t, got);
	assert_string_equal(path, "dir/sub/moved");
	free(path);
	inode_drop_name(d->t, sub, "moved");
	path = inode_path(d->t, got);
	assert_string_equal(path, "(a removed file)");
	free(path);
	assert_true(inode_is_orphan(got));
}

static void test_inode_names__target_of_a_move_becomes_an_orphan(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *f, *sub, *g;

	start(d);
	dir = tree_get(d, "dir");
	sub = tree_get(d, "dir/sub");
	f = tree_get(d, "dir/f");
	g = tree_get(d, "dir/sub/g");
	assert_int_equal(inode_move_name(d->t, sub, "g", dir, "f"), 0);
	assert_true(inode_is_orphan(f));
	assert_false(inode_is_orphan(g));
	assert_ptr_equal(inode_get(d->t, f->id), f);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode_names__what_was_found_before_a_change_is_not_entered),
		row(test_inode_names__peek_finds_only_what_is_known),
		row(test_inode_names__names_move_swap_and_drop),
		row(test_inode_names__target_of_a_move_becomes_an_orphan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
