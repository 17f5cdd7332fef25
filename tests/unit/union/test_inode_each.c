// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"

#include <errno.h>

struct seen {
	const struct inode *i;
	unsigned n;
};

/* Called with the table's lock. */
static bool see(void *arg, struct inode *i)
{
	struct seen *s = arg;

	s->i = i;
	s->n++;
	return false;
}

static struct seen look(struct tree_dirs *d)
{
	struct seen s = { 0 };

	inode_each_special(d->t, see, &s);
	return s;
}

static struct inode *start(struct tree_dirs *d)
{
	tree_put_text(d, "lower/f", "text");
	tree_mount(d, "volatile");
	return tree_get(d, "f");
}

static void test_inode_each__what_has_no_name_is_special(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f = start(d);

	assert_int_equal(look(d).n, 0);
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	assert_ptr_equal(look(d).i, f);
	inode_unref(d->t, f);
	assert_int_equal(look(d).n, 0);
}

static void test_inode_each__failed_sync_is_special_until_it_is_told(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f = start(d);

	inode_note_sync_error(d->t, f, -EIO);
	inode_note_sync_error(d->t, f, -EIO);
	assert_int_equal(look(d).n, 1);
	f->sync_error = 0;
	assert_int_equal(look(d).n, 0);
	inode_note_sync_error(d->t, f, -EIO);
	assert_ptr_equal(look(d).i, f);
	inode_unref(d->t, f);
}

static void test_inode_each__mapping_makes_special(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f = start(d);

	inode_note_mapped(d->t, f);
	assert_ptr_equal(look(d).i, f);
	assert_int_equal(look(d).n, 1);
	inode_unref(d->t, f);
}

static int count(void *arg, struct node_slot *s)
{
	unsigned *left = arg;

	assert_int_not_equal(s->state, NODE_FREE);
	return (*left)-- ? 0 : -EIO;
}

static void test_inode_each__slots_are_gone_through_until_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *f = start(d);
	unsigned left = 2;

	assert_int_equal(inode_each_slot(d->t, count, &left), 0);
	assert_int_equal(left, 0);
	assert_int_equal(inode_each_slot(d->t, count, &left), -EIO);
	inode_unref(d->t, f);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode_each__what_has_no_name_is_special),
		row(test_inode_each__failed_sync_is_special_until_it_is_told),
		row(test_inode_each__mapping_makes_special),
		row(test_inode_each__slots_are_gone_through_until_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
