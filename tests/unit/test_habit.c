// SPDX-License-Identifier: Apache-2.0
#include "veneer/habit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CALLER 7u
#define MANY 100000u

static struct habits habits;

static int setup(void **state)
{
	(void)state;
	habit_init(&habits);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	habit_release(&habits);
	return 0;
}

/* A directory of 50 files, and one request more for its end. */
static enum habit_listing list(uint32_t caller)
{
	enum habit_listing l = habit_begins(&habits, caller);

	habit_listed(&habits, caller, l, l == HABIT_LIST_PROBE ? 1 : l == HABIT_LIST_NAMES ? 50 : 0);
	return l;
}

static void test_habit__who_asks_for_nothing_gets_names(void **state)
{
	(void)state;
	assert_int_equal(list(CALLER), HABIT_LIST_PROBE);
	assert_int_equal(habit_goes_on(&habits, CALLER), HABIT_LIST_ALL);
	for (unsigned k = 0; k < MANY; k++)
		assert_int_equal(list(CALLER), HABIT_LIST_NAMES);
	assert_int_equal(habit_goes_on(&habits, CALLER), HABIT_LIST_NAMES);
}

static void test_habit__who_asks_for_the_probe_gets_all(void **state)
{
	(void)state;
	assert_int_equal(list(CALLER), HABIT_LIST_PROBE);
	habit_wants(&habits, CALLER);
	assert_int_equal(list(CALLER), HABIT_LIST_ALL);
	assert_int_equal(list(CALLER), HABIT_LIST_ALL);
	assert_int_equal(habit_goes_on(&habits, CALLER), HABIT_LIST_ALL);
}

static void test_habit__who_asks_later_gets_all_from_then_on(void **state)
{
	(void)state;
	list(CALLER);
	assert_int_equal(list(CALLER), HABIT_LIST_NAMES);
	habit_wants(&habits, CALLER);
	assert_int_equal(list(CALLER), HABIT_LIST_ALL);
}

static void test_habit__a_listing_without_a_file_probes_nothing(void **state)
{
	(void)state;
	for (int k = 0; k < 3; k++) {
		assert_int_equal(habit_begins(&habits, CALLER), HABIT_LIST_PROBE);
		habit_listed(&habits, CALLER, HABIT_LIST_PROBE, 0);
	}
}

static void test_habit__callers_are_told_apart_and_forgotten(void **state)
{
	(void)state;
	list(CALLER);
	assert_int_equal(list(CALLER + 1), HABIT_LIST_PROBE);
	assert_int_equal(list(CALLER), HABIT_LIST_NAMES);
	assert_int_equal(list(CALLER + HABIT_CALLERS), HABIT_LIST_PROBE);
	assert_int_equal(list(CALLER), HABIT_LIST_PROBE);
}

static void test_habit__names_that_others_look_up_end_it_for_all(void **state)
{
	unsigned listed = 0;

	(void)state;
	list(CALLER);
	while (list(CALLER) == HABIT_LIST_NAMES && ++listed < MANY)
		for (int k = 0; k < 50; k++)
			habit_wants(&habits, CALLER + 1);
	assert_true(listed < 4);
	assert_int_equal(list(CALLER + 2), HABIT_LIST_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_habit__who_asks_for_nothing_gets_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_habit__who_asks_for_the_probe_gets_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_habit__who_asks_later_gets_all_from_then_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_habit__a_listing_without_a_file_probes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_habit__callers_are_told_apart_and_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(test_habit__names_that_others_look_up_end_it_for_all, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
