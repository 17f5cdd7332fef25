// SPDX-License-Identifier: Apache-2.0
#include "veneer/follow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CALLER 77u
#define CPU 3

static struct follow follow;

static int setup(void **state)
{
	(void)state;
	follow_init(&follow);
	return 0;
}

/* n requests of one caller, answered as the pool would: how often its processor was looked up. */
static unsigned ask(uint32_t caller, unsigned n)
{
	unsigned looks = 0;

	for (unsigned k = 0; k < n; k++) {
		if (!follow_request(&follow, caller, false))
			continue;
		looks++;
		follow_found(&follow, caller, CPU);
	}
	return looks;
}

static void test_follow__one_caller_is_followed_after_a_while(void **state)
{
	(void)state;
	assert_int_equal(ask(CALLER, FOLLOW_AFTER - 1), 0);
	assert_int_equal(follow.cpu, -1);
	assert_int_equal(ask(CALLER, 1), 1);
	assert_int_equal(follow.cpu, CPU);
}

static void test_follow__it_is_looked_for_again(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	assert_int_equal(ask(CALLER, FOLLOW_AGAIN), 1);
	assert_int_equal(follow.cpu, CPU);
}

static void test_follow__another_caller_ends_it(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	assert_int_equal(ask(CALLER + 1, 1), 0);
	assert_int_equal(follow.cpu, -1);
	for (unsigned k = 0; k < 10 * FOLLOW_AFTER; k++)
		assert_int_equal(ask(CALLER + k % 2, 1), 0);
	assert_int_equal(follow.cpu, -1);
}

static void test_follow__what_nobody_waits_for_says_nothing(void **state)
{
	(void)state;
	for (unsigned k = 0; k < FOLLOW_AFTER; k++) {
		ask(CALLER, 1);
		ask(0, 1);
	}
	assert_int_equal(follow.cpu, CPU);
}

static void test_follow__work_side_by_side_ends_it(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	assert_false(follow_request(&follow, CALLER, true));
	assert_int_equal(follow.cpu, -1);
	assert_int_equal(ask(CALLER, FOLLOW_AFTER - 1), 1);
}

static void test_follow__after_a_term_it_has_to_be_shown_anew(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_TERM);
	assert_int_equal(follow.cpu, CPU);
	ask(CALLER, 1);
	assert_int_equal(follow.cpu, -1);
	ask(CALLER, FOLLOW_AFTER - 1);
	assert_int_equal(follow.cpu, CPU);
}

static void test_follow__an_answer_that_comes_late_is_not_taken(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER - 1);
	assert_true(follow_request(&follow, CALLER, false));
	follow_request(&follow, CALLER + 1, false);
	follow_found(&follow, CALLER, CPU);
	assert_int_equal(follow.cpu, -1);
}

static void test_follow__a_caller_that_is_not_seen_is_not_followed(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	follow_found(&follow, CALLER, -2);
	assert_int_equal(follow.cpu, -1);
}

static void test_follow__refused_once_is_for_good(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	follow_refused(&follow);
	assert_int_equal(follow.cpu, -1);
	assert_int_equal(ask(CALLER, 2 * FOLLOW_TERM), 0);
}

static void test_follow__lost_once_it_is_followed_again(void **state)
{
	(void)state;
	ask(CALLER, FOLLOW_AFTER);
	follow_lost(&follow);
	assert_int_equal(follow.cpu, -1);
	assert_int_equal(ask(CALLER, FOLLOW_AFTER), 1);
	assert_int_equal(follow.cpu, CPU);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_follow__one_caller_is_followed_after_a_while, setup),
		cmocka_unit_test_setup(test_follow__it_is_looked_for_again, setup),
		cmocka_unit_test_setup(test_follow__another_caller_ends_it, setup),
		cmocka_unit_test_setup(test_follow__what_nobody_waits_for_says_nothing, setup),
		cmocka_unit_test_setup(test_follow__work_side_by_side_ends_it, setup),
		cmocka_unit_test_setup(test_follow__after_a_term_it_has_to_be_shown_anew, setup),
		cmocka_unit_test_setup(test_follow__an_answer_that_comes_late_is_not_taken, setup),
		cmocka_unit_test_setup(test_follow__a_caller_that_is_not_seen_is_not_followed, setup),
		cmocka_unit_test_setup(test_follow__refused_once_is_for_good, setup),
		cmocka_unit_test_setup(test_follow__lost_once_it_is_followed_again, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
