// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/readdirplus_policy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CALLER 7u
#define MANY   100000u

static struct readdirplus_policy readdirplus_policy;

static int setup(void **state)
{
	(void)state;
	readdirplus_policy_init(&readdirplus_policy);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	readdirplus_policy_release(&readdirplus_policy);
	return 0;
}

/* A directory of 50 files, and one request more for its end. */
static enum readdirplus_policy_listing list(uint32_t caller)
{
	enum readdirplus_policy_listing l = readdirplus_policy_begins(&readdirplus_policy, caller);

	readdirplus_policy_listed(&readdirplus_policy, caller, l,
				  l == READDIRPLUS_POLICY_LIST_PROBE   ? 1
				  : l == READDIRPLUS_POLICY_LIST_NAMES ? 50
								       : 0);
	return l;
}

static void test_readdirplus_policy__who_asks_for_nothing_gets_names(void **state)
{
	(void)state;
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_PROBE);
	assert_int_equal(readdirplus_policy_goes_on(&readdirplus_policy, CALLER),
			 READDIRPLUS_POLICY_LIST_ALL);
	for (unsigned k = 0; k < MANY; k++)
		assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_NAMES);
	assert_int_equal(readdirplus_policy_goes_on(&readdirplus_policy, CALLER),
			 READDIRPLUS_POLICY_LIST_NAMES);
}

static void test_readdirplus_policy__who_asks_for_the_probe_gets_all(void **state)
{
	(void)state;
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_PROBE);
	readdirplus_policy_wants(&readdirplus_policy, CALLER);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_ALL);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_ALL);
	assert_int_equal(readdirplus_policy_goes_on(&readdirplus_policy, CALLER),
			 READDIRPLUS_POLICY_LIST_ALL);
}

static void test_readdirplus_policy__who_asks_later_gets_all_from_then_on(void **state)
{
	(void)state;
	list(CALLER);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_NAMES);
	readdirplus_policy_wants(&readdirplus_policy, CALLER);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_ALL);
}

static void test_readdirplus_policy__a_listing_without_a_file_probes_nothing(void **state)
{
	(void)state;
	for (int k = 0; k < 3; k++) {
		assert_int_equal(readdirplus_policy_begins(&readdirplus_policy, CALLER),
				 READDIRPLUS_POLICY_LIST_PROBE);
		readdirplus_policy_listed(&readdirplus_policy, CALLER,
					  READDIRPLUS_POLICY_LIST_PROBE, 0);
	}
}

static void test_readdirplus_policy__callers_are_told_apart_and_forgotten(void **state)
{
	(void)state;
	list(CALLER);
	assert_int_equal(list(CALLER + 1), READDIRPLUS_POLICY_LIST_PROBE);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_NAMES);
	assert_int_equal(list(CALLER + READDIRPLUS_POLICY_CALLERS), READDIRPLUS_POLICY_LIST_PROBE);
	assert_int_equal(list(CALLER), READDIRPLUS_POLICY_LIST_PROBE);
}

static void test_readdirplus_policy__names_that_others_look_up_end_it_for_all(void **state)
{
	unsigned listed = 0;

	(void)state;
	list(CALLER);
	while (list(CALLER) == READDIRPLUS_POLICY_LIST_NAMES && ++listed < MANY)
		for (int k = 0; k < 50; k++)
			readdirplus_policy_wants(&readdirplus_policy, CALLER + 1);
	assert_true(listed < 4);
	assert_int_equal(list(CALLER + 2), READDIRPLUS_POLICY_LIST_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__who_asks_for_nothing_gets_names, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__who_asks_for_the_probe_gets_all, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__who_asks_later_gets_all_from_then_on, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__a_listing_without_a_file_probes_nothing, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__callers_are_told_apart_and_forgotten, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_readdirplus_policy__names_that_others_look_up_end_it_for_all, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
