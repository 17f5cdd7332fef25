// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/union/lookup.h"

#include <dirent.h>

static void start(struct tree_dirs *d)
{
	tree_put_text(d, "lower/dir/f", "text");
	tree_mount(d, "volatile");
}

static const char *parent_name(struct tree_dirs *d, uint32_t id)
{
	static char name[NAME_MAX + 1];
	struct inode *parent;

	assert_int_equal(inode_any_name(d->t, inode_get(d->t, id), &parent, name), 0);
	inode_unref(d->t, parent);
	return name;
}

static void test_inode_ids__new_number_is_given_and_the_old_one_still_leads_there(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f;
	uint32_t old, new, parent;
	const char *name;
	char *path;

	start(d);
	f = tree_get(d, "dir/f");
	old = tree_grant(d, f);
	assert_int_equal(inode_renumber(d->t, f, old), 0);
	new = f->id;
	assert_int_not_equal(new, old);
	assert_int_equal(f->n_former, 1);
	assert_ptr_equal(inode_get(d->t, old), f);
	assert_ptr_equal(inode_get(d->t, new), f);
	assert_int_equal(inode_slot(d->t, old)->state, NODE_FORMER);
	assert_int_equal(inode_slot(d->t, old)->successor, new);
	assert_int_equal(inode_slot(d->t, new)->ino, f->ino);
	assert_true(inode_slot(d->t, new)->is_successor);
	assert_false(inode_slot(d->t, old)->is_successor);
	assert_int_equal(node_table_name(d->t->nodes, new, &parent, &name), 1);
	assert_string_equal(parent_name(d, parent), "dir");
	assert_memory_equal(name, "f", 1);
	/* A late change with the old id changes nothing. */
	assert_int_equal(inode_renumber(d->t, f, old), 0);
	assert_int_equal(f->id, new);
	assert_int_equal(tree_grant(d, tree_get(d, "dir/f")), new);
	path = inode_path(d->t, f);
	assert_string_equal(path, "dir/f");
	free(path);
	tree_expect_inode(d, f, "text", 4);
	inode_forget(d->t, new, 1);
	inode_forget(d->t, old, 1);
	assert_null(inode_get(d->t, old));
	assert_null(inode_get(d->t, new));
	assert_int_equal(node_table_count(d->t->nodes), 1);
}

static void test_inode_ids__numbers_held_to_the_end_go_with_the_table(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f;
	uint32_t low, high;

	tree_put_text(d, "lower/e", "other");
	start(d);
	low = tree_grant(d, tree_get(d, "e"));
	f = tree_get(d, "dir/f");
	high = tree_grant(d, f);
	inode_forget(d->t, low, 1);
	/* The new number may be lower than the one before. */
	assert_int_equal(inode_renumber(d->t, f, high), 0);
	assert_int_equal(f->id, low);
	assert_true(low < high);
	assert_int_equal(tree_grant(d, tree_get(d, "dir/f")), low);
}

static void test_inode_ids__lives_while_any_of_its_numbers_is_held(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f;
	uint32_t first, second;

	start(d);
	f = tree_get(d, "dir/f");
	first = tree_grant(d, f);
	assert_int_equal(inode_renumber(d->t, f, first), 0);
	second = tree_grant(d, tree_get(d, "dir/f"));
	assert_int_equal(inode_renumber(d->t, f, second), 0);
	assert_int_equal(f->n_former, 2);
	inode_forget(d->t, first, 1);
	assert_null(inode_get(d->t, first));
	assert_int_equal(f->n_former, 1);
	/* A node that was never sent is nothing to wait for. */
	assert_int_equal(inode_renumber(d->t, f, f->id), 0);
	assert_int_equal(f->n_former, 1);
	assert_ptr_equal(inode_get(d->t, second), f);
	/* A look-up under way when the number changed counts for the one that is sent. */
	struct inode *late = tree_get(d, "dir/f");
	assert_int_equal(inode_renumber(d->t, f, f->id), 0);
	assert_int_equal(tree_grant(d, late), f->id);
	inode_forget(d->t, f->id, 1);
	assert_ptr_equal(inode_get(d->t, second), f);
	inode_forget(d->t, second, 1);
	assert_int_equal(node_table_count(d->t->nodes), 1);
}

static void test_inode_ids__each_says_the_present_one(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f;
	uint32_t id[3];

	start(d);
	f = tree_get(d, "dir/f");
	id[0] = tree_grant(d, f);
	for (unsigned k = 1; k < 3; k++) {
		assert_int_equal(inode_renumber(d->t, f, id[k - 1]), 0);
		id[k] = tree_grant(d, tree_get(d, "dir/f"));
	}
	assert_int_equal(inode_slot(d->t, id[0])->successor, id[2]);
	assert_int_equal(inode_slot(d->t, id[1])->successor, id[2]);
	inode_forget(d->t, id[1], 1);
	assert_ptr_equal(inode_get(d->t, id[0]), f);
	inode_forget(d->t, id[0], 1);
	assert_int_equal(f->n_former, 0);
	inode_forget(d->t, id[2], 1);
	assert_int_equal(node_table_count(d->t->nodes), 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode_ids__new_number_is_given_and_the_old_one_still_leads_there),
		row(test_inode_ids__lives_while_any_of_its_numbers_is_held),
		row(test_inode_ids__numbers_held_to_the_end_go_with_the_table),
		row(test_inode_ids__each_says_the_present_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
