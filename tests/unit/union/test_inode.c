// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>

static void start(struct tree_dirs *d)
{
	tree_put_text(d, "lower/dir/f", "text");
	tree_put_text(d, "lower/dir/sub/g", "more");
	tree_mount(d, "volatile");
}

static void test_inode__lives_until_its_last_lookup_is_forgotten(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, *b;
	uint32_t id;

	start(d);
	a = tree_get(d, "dir/f");
	b = tree_get(d, "dir/f");
	assert_ptr_equal(a, b);
	id = tree_grant(d, a);
	assert_int_equal(tree_grant(d, b), id);
	assert_int_equal(tree_lookups(d, id), 2);
	inode_forget(d->t, id, 1);
	assert_ptr_equal(inode_get(d->t, id), a);
	inode_forget(d->t, id, 1);
	assert_null(inode_get(d->t, id));
}

static void test_inode__forgetting_too_much_is_harmless(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;

	start(d);
	id = tree_grant(d, tree_get(d, "dir/f"));
	inode_forget(d->t, id, UINT64_MAX);
	inode_forget(d->t, id, 1);
	inode_forget(d->t, 123456789, 1);
	inode_forget(d->t, UINT64_MAX, 1);
	assert_null(inode_get(d->t, id));
	tree_expect_text(d, "dir/f", "text");
}

static void test_inode__root_outlives_any_forget(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	inode_forget(d->t, NODE_TABLE_ROOT, 1000);
	assert_ptr_equal(inode_get(d->t, NODE_TABLE_ROOT), d->t->root);
	tree_expect_text(d, "dir/f", "text");
}

static void test_inode__parent_lives_as_long_as_a_child_has_a_name_in_it(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *g;
	uint32_t sub;
	char *path;

	start(d);
	g = tree_get(d, "dir/sub/g");
	sub = tree_grant(d, tree_get(d, "dir/sub"));
	inode_forget(d->t, sub, 1);
	assert_int_equal(tree_lookups(d, sub), 0);
	assert_non_null(inode_get(d->t, sub));
	path = inode_path(d->t, g);
	assert_string_equal(path, "dir/sub/g");
	free(path);
	tree_forget(d, g);
	assert_null(inode_get(d->t, sub));
}

static void test_inode__nothing_is_left_when_all_is_forgotten(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	for (unsigned k = 0; k < 50; k++) {
		tree_expect_text(d, "dir/f", "text");
		tree_expect_text(d, "dir/sub/g", "more");
		tree_expect_names(d, "dir", "f sub");
	}
	assert_int_equal(node_table_count(d->t->nodes), 1);
}

static void test_inode__other_name_of_a_copy_in_the_making_is_the_same_inode(void **state)
{
	const struct inode_found found = {
		.type = DT_REG, .has_upper = true, .upper_ino = 4711, .ino = 77
	};
	struct tree_dirs *d = *state;
	struct inode *f, *other;

	start(d);
	f = tree_get(d, "dir/f");
	inode_expect_upper(d->t, f, 4711);
	assert_int_equal(inode_enter(d->t, d->t->root, "one", &found, &other), 0);
	assert_ptr_equal(other, f);
	inode_expect_upper(d->t, f, 0);
	assert_int_equal(inode_enter(d->t, d->t->root, "two", &found, &other), 0);
	assert_ptr_not_equal(other, f);
	tree_forget(d, other);
	inode_unref(d->t, f);
	inode_unref(d->t, f);
}

static void test_inode__same_number_on_another_device_is_another_file(void **state)
{
	struct inode_found found = {
		.type = DT_REG, .has_upper = true, .upper_ino = 4711, .ino = 77
	};
	struct tree_dirs *d = *state;
	struct inode *own, *inner, *twin;

	start(d);
	assert_int_equal(inode_enter(d->t, d->t->root, "own", &found, &own), 0);
	found.upper_dev = inode_upper_dev(d->t, d->t->upper->dev + 1);
	found.ino = 78;
	assert_int_equal(inode_enter(d->t, d->t->root, "inner", &found, &inner), 0);
	assert_ptr_not_equal(own, inner);
	assert_int_equal(inner->ino, 78);
	assert_int_equal(inode_enter(d->t, d->t->root, "twin", &found, &twin), 0);
	assert_ptr_equal(twin, inner);
	found.upper_dev = inode_upper_dev(d->t, d->t->upper->dev);
	assert_int_equal(inode_enter(d->t, d->t->root, "other", &found, &twin), 0);
	assert_ptr_equal(twin, own);
	inode_unref(d->t, twin);
	inode_unref(d->t, inner);
	inode_unref(d->t, inner);
	inode_unref(d->t, own);
}

static void test_inode__id_used_again_has_another_generation(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	uint32_t id, generation;

	start(d);
	i = tree_get(d, "dir/f");
	id = i->id;
	generation = i->generation;
	tree_forget(d, i);
	for (unsigned k = 0; k < 20; k++) {
		i = tree_get(d, "dir/f");
		if (i->id == id)
			assert_int_not_equal(i->generation, generation);
		generation = i->id == id ? i->generation : generation;
		tree_forget(d, i);
	}
}

static void test_inode__unlinked_file_is_an_orphan_that_stays_usable(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *f, *parent;
	char name[NAME_MAX + 1];
	struct stat st;
	uint32_t id;

	start(d);
	dir = tree_get(d, "dir");
	f = tree_get(d, "dir/f");
	id = f->id;
	assert_int_equal(remove_file(d->t, dir, "f"), 0);
	assert_int_equal(node_table_slot(d->t->nodes, id)->state, NODE_ORPHAN);
	assert_int_equal(inode_any_name(d->t, f, &parent, name), -ENOENT);
	tree_expect_inode(d, f, "text", 4);
	assert_int_equal(cow_write(d->t, f, "T", 1, 0), 0);
	tree_expect_inode(d, f, "Text", 4);
	assert_int_equal(lookup_stat(d->t, f, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	tree_forget(d, f);
	assert_null(inode_get(d->t, id));
	assert_null(tree_look(d, "dir/f"));
}

static void test_inode__orphan_and_a_new_file_of_its_name_are_two(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *old, *new;

	start(d);
	dir = tree_get(d, "dir");
	old = tree_get(d, "dir/f");
	assert_int_equal(remove_file(d->t, dir, "f"), 0);
	new = tree_make(d, "dir", "f", S_IFREG | 0644);
	assert_ptr_not_equal(new, old);
	assert_int_not_equal(new->ino, old->ino);
	assert_int_equal(cow_write(d->t, new, "new", 3, 0), 0);
	tree_expect_inode(d, old, "text", 4);
	tree_expect_text(d, "dir/f", "new");
}

static void test_inode__hard_links_of_the_upper_are_one_inode(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *f, *again;
	struct stat st;

	start(d);
	dir = tree_get(d, "dir");
	f = tree_make(d, "dir", "new", S_IFREG | 0644);
	assert_int_equal(create_link(d->t, f, dir, "link", &st), 0);
	assert_int_equal(st.st_nlink, 2);
	again = tree_get(d, "dir/link");
	assert_ptr_equal(again, f);
	assert_int_equal(remove_file(d->t, dir, "new"), 0);
	assert_int_equal(cow_write(d->t, f, "x", 1, 0), 0);
	tree_expect_text(d, "dir/link", "x");
}

static void test_inode__hard_links_are_one_inode_after_a_remount(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir, *a, *b;
	struct stat st;

	start(d);
	dir = tree_get(d, "dir");
	assert_int_equal(
		create_link(d->t, tree_make(d, "dir", "new", S_IFREG | 0644), dir, "link", &st), 0);
	tree_unmount(d);
	tree_mount(d, "volatile");
	a = tree_get(d, "dir/new");
	b = tree_get(d, "dir/link");
	assert_ptr_equal(a, b);
	assert_int_equal(cow_write(d->t, a, "one", 3, 0), 0);
	tree_expect_text(d, "dir/link", "one");
}

static void test_inode__number_stays_through_copy_up_and_remount(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	ino_t f, dir;

	free(tree_put_pattern(d, "lower/dir/big", 20000, 1));
	start(d);
	f = tree_stat(d, "dir/big").st_ino;
	dir = tree_stat(d, "dir").st_ino;
	i = tree_get(d, "dir/big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	assert_int_equal(tree_stat(d, "dir/big").st_ino, f);
	assert_int_equal(tree_stat(d, "dir").st_ino, dir);
	tree_unmount(d);
	tree_mount(d, "volatile");
	assert_int_equal(tree_stat(d, "dir/big").st_ino, f);
	assert_int_equal(tree_stat(d, "dir").st_ino, dir);
}

static void test_inode__what_the_kernel_holds_by_name_is_listed(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *held;
	uint64_t ids[4];
	uint32_t dir, f, g, from = 0;

	start(d);
	dir = tree_grant(d, tree_get(d, "dir"));
	f = tree_grant(d, tree_get(d, "dir/f"));
	held = tree_get(d, "dir/sub");
	g = tree_grant(d, tree_get(d, "dir/sub/g"));
	assert_int_equal(inode_count(d->t), 5);
	assert_int_equal(inode_list_idle(d->t, &from, ids, 2), 2);
	assert_true(ids[0] == dir && ids[1] == f && from > f);
	assert_int_equal(inode_list_idle(d->t, &from, ids, 4), 1);
	assert_true(ids[0] == g && from == 0);
	inode_forget(d->t, f, 1);
	assert_int_equal(inode_list_idle(d->t, &from, ids, 4), 2);
	inode_unref(d->t, held);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode__lives_until_its_last_lookup_is_forgotten),
		row(test_inode__forgetting_too_much_is_harmless),
		row(test_inode__root_outlives_any_forget),
		row(test_inode__parent_lives_as_long_as_a_child_has_a_name_in_it),
		row(test_inode__nothing_is_left_when_all_is_forgotten),
		row(test_inode__other_name_of_a_copy_in_the_making_is_the_same_inode),
		row(test_inode__same_number_on_another_device_is_another_file),
		row(test_inode__id_used_again_has_another_generation),
		row(test_inode__unlinked_file_is_an_orphan_that_stays_usable),
		row(test_inode__orphan_and_a_new_file_of_its_name_are_two),
		row(test_inode__hard_links_of_the_upper_are_one_inode),
		row(test_inode__hard_links_are_one_inode_after_a_remount),
		row(test_inode__number_stays_through_copy_up_and_remount),
		row(test_inode__what_the_kernel_holds_by_name_is_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
