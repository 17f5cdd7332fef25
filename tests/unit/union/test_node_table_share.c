// SPDX-License-Identifier: Apache-2.0
#include "support/nodes.h"
#include "support/tree.h"

#include "veneer/union/node_table.h"

#include <errno.h>
#include <limits.h>

static void test_node_table_share__each_slot_that_changes_is_listed_once(void **state)
{
	struct node_table *t = nodes_new();
	const uint32_t root = nodes_alloc(t), a = nodes_alloc(t), b = nodes_alloc(t),
		       c = nodes_alloc(t);
	const uint32_t *ids;

	(void)state;
	assert_int_equal(node_table_touch_begin(t), 0);
	assert_int_equal(node_table_touch_begin(t), -EBUSY);
	assert_int_equal(node_table_touch_list(t, &ids), 0);
	assert_int_equal(node_table_set_name(t, b, root, "name"), 0);
	node_table_clear_name(t, b);
	node_table_release(t, a);
	assert_int_equal(nodes_alloc(t), a);
	assert_int_equal(node_table_touch_list(t, &ids), 2);
	assert_true(ids[0] == b && ids[1] == a);
	assert_true(node_table_touch_has(t, a) && !node_table_touch_has(t, c));
	node_table_touch_end(t);
	node_table_touch(t, c);
	assert_int_equal(node_table_touch_begin(t), 0);
	assert_int_equal(node_table_touch_list(t, &ids), 0);
	node_table_free(t);
}

static void test_node_table_share__name_that_is_refused_leaves_none_that_is_old(void **state)
{
	struct node_table *t = nodes_new();
	const uint32_t root = nodes_alloc(t);
	char name[NAME_MAX + 2];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(node_table_set_name(t, nodes_alloc(t), root, name), -EINVAL);
	assert_int_equal(node_table_touch_begin(t), 0);
	node_table_free(t);
}

static void test_node_table_share__view_has_the_slots_and_objects_of_its_own(void **state)
{
	struct node_table *t = nodes_new(), *view;
	char one, two;
	uint32_t id;

	(void)state;
	nodes_alloc(t);
	id = nodes_alloc(t);
	node_table_set_object(t, id, &one);
	assert_int_equal(node_table_share(t, &view), 0);
	assert_ptr_equal(node_table_slot(view, id), node_table_slot(t, id));
	assert_null(node_table_object(view, id));
	node_table_set_object(view, id, &two);
	assert_ptr_equal(node_table_object(t, id), &one);
	while (node_table_end(t) < 200000)
		id = nodes_alloc(t);
	assert_null(node_table_slot(view, id));
	assert_int_equal(node_table_share_refresh(view, t), 0);
	assert_ptr_equal(node_table_slot(view, id), node_table_slot(t, id));
	node_table_set_object(view, id, &two);
	node_table_share_swap(t, view);
	assert_ptr_equal(node_table_object(t, id), &two);
	assert_null(node_table_object(view, id));
	node_table_free(t);
	assert_null(node_table_object(view, id));
	node_table_share_free(view);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node_table_share__each_slot_that_changes_is_listed_once),
		cmocka_unit_test(
			test_node_table_share__name_that_is_refused_leaves_none_that_is_old),
		cmocka_unit_test(test_node_table_share__view_has_the_slots_and_objects_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
