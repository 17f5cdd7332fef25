// SPDX-License-Identifier: Apache-2.0
/* Each rule of inode_check_invariants, broken by hand in a small mount. */
#include "support/broken.h"
#include "support/tree.h"
#include "union/inode-internal.h"

#include "veneer/base/invariants.h"
#include "veneer/data/remove.h"

#include <dirent.h>

static struct inode *start(struct tree_dirs *d, uint32_t *ret_id)
{
	tree_put_text(d, "lower/dir/f", "text");
	tree_put_text(d, "lower/dir/g", "more");
	tree_mount(d, "volatile");
	return tree_get_granted(d, "dir/f", ret_id);
}

#define CHECK inode_check_invariants(d->t, NULL)

static void test_inode_check__inode_and_its_slot_lead_to_each_other(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);
	struct node_slot *s = node_table_slot(d->t->nodes, id);

	EXPECT_BROKEN(CHECK, "inode: its slot leads to it", s->state, NODE_FORMER);
	EXPECT_BROKEN(CHECK, "inode: its slot says what it is", s->type, DT_DIR);
	EXPECT_BROKEN(CHECK, "inode: its slot says what it is", i->generation, i->generation + 1);
	EXPECT_BROKEN(CHECK, "inode: one lives while somebody needs it", s->nlookup, 0);
	node_table_set_object(d->t->nodes, id, d->t->root);
	assert_string_equal(inode_check_invariants(d->t, i), "inode: its slot leads to it");
	node_table_set_object(d->t->nodes, id, i);
	assert_null(CHECK);
}

static void test_inode_check__names_lead_to_inodes_and_hold_parents(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);
	struct name *n = container_of(i->names.next, struct name, of_inode);
	struct inode *dir = n->parent;

	EXPECT_BROKEN(CHECK, "inode: each of its names leads to it", n->inode, d->t->root);
	EXPECT_BROKEN(CHECK, "inode: each of its names leads to it", *n->name, 'x');
	EXPECT_BROKEN(CHECK, "inode: each name holds a reference on its parent", dir->refs, 0);
	EXPECT_BROKEN(inode_check_invariants(d->t, i),
		      "inode: a name holds a reference on its parent", dir->type, DT_REG);
}

static void test_inode_check__what_is_special_is_listed(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);
	struct node_slot *s = node_table_slot(d->t->nodes, id);

	EXPECT_BROKEN(CHECK, "inode: a special one is listed", i->given, INODE_GIVEN_MAPPING);
	EXPECT_BROKEN(CHECK, "inode: a special one is listed", s->held_fd, 5);
	i->has_copy = true;
	s->held_fd = 5;
	assert_null(CHECK);
	i->has_copy = false;
	s->held_fd = 0;
}

static void test_inode_check__former_ids_lead_to_their_inode(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);
	struct node_slot *s = node_table_slot(d->t->nodes, id);

	inode_ref(d->t, i);
	assert_int_equal(inode_renumber(d->t, i, id), 0);
	assert_int_equal(i->n_former, 1);
	EXPECT_BROKEN(CHECK, "inode: a former id that the kernel holds leads to it", s->state,
		      NODE_LOWER);
	EXPECT_BROKEN(CHECK, "inode: a former id that the kernel holds leads to it", s->successor,
		      1);
	EXPECT_BROKEN(CHECK, "inode: a former id that the kernel holds leads to it", s->nlookup, 0);
	inode_unref(d->t, i);
}

static void test_inode_check__table_counts_its_inodes(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);

	EXPECT_BROKEN(CHECK, "inode: the unresolved ones are counted", d->t->inodes->n_unresolved,
		      1);
	EXPECT_BROKEN(CHECK, "inode: the unresolved ones are counted", i->stage, INODE_UNRESOLVED);
	id = node_table_end(d->t->nodes);
	assert_int_equal(node_table_alloc(d->t->nodes, &id), 0);
	assert_null(CHECK);
	__atomic_store_n(&node_table_slot(d->t->nodes, id)->state, NODE_FREE, __ATOMIC_SEQ_CST);
	assert_string_equal(CHECK, "inode: the slots in use are counted");
}

static void test_inode_check__large_table_is_checked_where_it_changed(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id, other;
	struct inode *i = start(d, &id), *g = tree_get_granted(d, "dir/g", &other);

	while (node_table_end(d->t->nodes) <= INVARIANTS_MAX)
		assert_int_equal(node_table_alloc(d->t->nodes, &id), 0);
	i->links = INODE_ORPHAN;
	assert_string_equal(inode_check_invariants(d->t, i), "inode: a special one is listed");
	assert_null(inode_check_invariants(d->t, g));
	assert_null(CHECK);
	i->links = INODE_NAMED;
}

static void test_inode_check__finds_nothing_in_an_orphan(void **state)
{
	struct tree_dirs *d = *state;
	uint32_t id;
	struct inode *i = start(d, &id);

	inode_drop_name(d->t, container_of(i->names.next, struct name, of_inode)->parent, "f");
	assert_int_equal(i->links, INODE_ORPHAN);
	assert_null(CHECK);
	EXPECT_BROKEN(CHECK, "inode: one without names, but for the root, is an orphan", i->links,
		      INODE_NAMED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_inode_check__inode_and_its_slot_lead_to_each_other),
		TEST(test_inode_check__names_lead_to_inodes_and_hold_parents),
		TEST(test_inode_check__what_is_special_is_listed),
		TEST(test_inode_check__former_ids_lead_to_their_inode),
		TEST(test_inode_check__table_counts_its_inodes),
		TEST(test_inode_check__large_table_is_checked_where_it_changed),
		TEST(test_inode_check__finds_nothing_in_an_orphan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
