// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/nodetab.h"

static struct nodetab *new_table(void)
{
	struct nodetab *t;

	assert_int_equal(nodetab_new(&t), 0);
	return t;
}

static uint32_t alloc(struct nodetab *t)
{
	uint32_t id = 0;

	assert_int_equal(nodetab_alloc(t, &id), 0);
	return id;
}

static void expect_name(struct nodetab *t, uint32_t id, const char *name)
{
	const char *got = NULL;
	uint32_t parent;

	assert_int_equal(nodetab_name(t, id, &parent, &got), strlen(name));
	assert_memory_equal(got, name, strlen(name));
}

static void test_nodetab__first_slot_is_the_root(void **state)
{
	struct nodetab *t = new_table();

	(void)state;
	assert_int_equal(alloc(t), NODETAB_ROOT);
	assert_int_equal(nodetab_slot(t, NODETAB_ROOT)->state, NODE_LOWER);
	assert_int_equal(nodetab_slot(t, NODETAB_ROOT)->nlookup, 0);
	assert_int_equal(nodetab_count(t), 1);
	nodetab_free(t);
}

static void test_nodetab__id_not_in_use_has_no_slot_and_no_object(void **state)
{
	static const uint64_t bad[] = { 0,	   2,	       3,
					1000000,   UINT32_MAX, (uint64_t)UINT32_MAX + 2,
					UINT64_MAX };
	struct nodetab *t = new_table();

	(void)state;
	alloc(t);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		assert_null(nodetab_slot(t, bad[k]));
		assert_null(nodetab_object(t, bad[k]));
	}
	nodetab_free(t);
}

static void test_nodetab__id_used_again_has_another_generation(void **state)
{
	struct nodetab *t = new_table();
	uint32_t id, again, generation;

	(void)state;
	alloc(t);
	id = alloc(t);
	generation = nodetab_slot(t, id)->generation;
	nodetab_set_object(t, id, t);
	nodetab_release(t, id);
	assert_null(nodetab_slot(t, id));
	assert_null(nodetab_object(t, id));
	for (unsigned k = 0; k < 100; k++) {
		again = alloc(t);
		if (again == id) {
			assert_int_not_equal(nodetab_slot(t, again)->generation, generation);
			assert_null(nodetab_object(t, again));
		}
	}
	nodetab_free(t);
}

static void test_nodetab__name_is_replaced_and_cleared(void **state)
{
	struct nodetab *t = new_table();
	const char *name;
	uint32_t id, parent;

	(void)state;
	alloc(t);
	id = alloc(t);
	assert_int_equal(nodetab_set_name(t, id, 1, "short"), 0);
	expect_name(t, id, "short");
	assert_int_equal(nodetab_set_name(t, id, 1, "a name that is longer than the first"), 0);
	expect_name(t, id, "a name that is longer than the first");
	assert_int_equal(nodetab_name(t, id, &parent, &name), 36);
	assert_int_equal(parent, 1);
	nodetab_clear_name(t, id);
	assert_int_equal(nodetab_name(t, id, &parent, &name), 0);
	nodetab_free(t);
}

static void test_nodetab__slots_never_move(void **state)
{
	struct nodetab *t = new_table();
	struct node_slot *first;

	(void)state;
	first = nodetab_slot(t, alloc(t));
	for (unsigned k = 0; k < 20000; k++)
		alloc(t);
	assert_ptr_equal(nodetab_slot(t, NODETAB_ROOT), first);
	assert_int_equal(nodetab_count(t), 20001);
	assert_int_equal(nodetab_end(t), 20002);
	nodetab_free(t);
}

/* Renaming for ever must not fill the arena: it is bounded by what is in use. */
static void test_nodetab__names_that_come_and_go_stay_right(void **state)
{
	struct nodetab *t = new_table();
	uint64_t seed = tree_seed("nodetab");
	char names[50][NAME_MAX + 1];
	uint32_t ids[50];

	(void)state;
	alloc(t);
	for (unsigned k = 0; k < 50; k++) {
		ids[k] = alloc(t);
		*names[k] = '\0';
	}
	for (unsigned step = 0; step < 200000; step++) {
		unsigned k = tree_random(&seed) % 50;
		size_t len = 1 + tree_random(&seed) % NAME_MAX;

		if (step % 1000 < 20) {
			nodetab_release(t, ids[k]);
			ids[k] = alloc(t);
		}
		memset(names[k], 'a' + (int)(step % 26), len);
		names[k][len] = '\0';
		assert_int_equal(nodetab_set_name(t, ids[k], 1, names[k]), 0);
	}
	for (unsigned k = 0; k < 50; k++)
		if (*names[k])
			expect_name(t, ids[k], names[k]);
	nodetab_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodetab__first_slot_is_the_root),
		cmocka_unit_test(test_nodetab__id_not_in_use_has_no_slot_and_no_object),
		cmocka_unit_test(test_nodetab__id_used_again_has_another_generation),
		cmocka_unit_test(test_nodetab__name_is_replaced_and_cleared),
		cmocka_unit_test(test_nodetab__slots_never_move),
		cmocka_unit_test(test_nodetab__names_that_come_and_go_stay_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
