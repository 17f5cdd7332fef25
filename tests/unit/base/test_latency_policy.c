// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/base/latency_policy.h"

/* n requests, each so long after the one before; the number of the first that asks, 0: none. */
static unsigned replay(struct latency_policy *p, int64_t *now_ms, unsigned n, int64_t gap_ms,
		       int us)
{
	for (unsigned k = 1; k <= n; k++) {
		*now_ms += gap_ms;
		if (latency_policy_request(p, *now_ms, us))
			return k;
	}
	return 0;
}

static void test_latency_policy__a_run_of_close_requests_asks(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;

	(void)state;
	assert_int_equal(replay(&p, &now, 1000, 0, 0), LATENCY_POLICY_RUN);
	p = (struct latency_policy)LATENCY_POLICY_INIT;
	now += 1000;
	assert_int_equal(replay(&p, &now, 1000, LATENCY_POLICY_CLOSE_MS, 0), LATENCY_POLICY_RUN);
	p = (struct latency_policy)LATENCY_POLICY_INIT;
	now += 1000;
	assert_int_equal(replay(&p, &now, 1000, LATENCY_POLICY_CLOSE_MS + 1, 0), 0);
}

/* A file that is opened, read and closed every 100 ms: eight requests at once. */
static void test_latency_policy__a_file_now_and_then_asks_for_nothing(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 0;

	(void)state;
	for (unsigned k = 0; k < 600; k++) {
		now += 100;
		assert_int_equal(replay(&p, &now, 8, 0, 0), 0);
	}
}

static void test_latency_policy__a_pause_begins_another_run(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;

	(void)state;
	assert_int_equal(replay(&p, &now, LATENCY_POLICY_RUN - 1, 1, 0), 0);
	now += 50;
	assert_int_equal(replay(&p, &now, LATENCY_POLICY_RUN - 1, 1, 0), 0);
	assert_int_equal(replay(&p, &now, 1, 1, 0), 1);
}

static void test_latency_policy__what_is_held_is_not_asked_for_again(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;

	(void)state;
	assert_int_equal(replay(&p, &now, 100, 1, 2), LATENCY_POLICY_RUN);
	latency_policy_hold(&p, 2);
	assert_int_equal(replay(&p, &now, 1000, 1, 2), 0);
	assert_int_equal(replay(&p, &now, 1000, 1, 20), 0);
}

/* Looked at each time that LATENCY_POLICY_LOOK_MS are over. */
static void test_latency_policy__enough_requests_keep_it(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;
	uint32_t seen = 0;

	(void)state;
	latency_policy_hold(&p, 0);
	replay(&p, &now, LATENCY_POLICY_KEEP, 0, 0);
	assert_true(latency_policy_is_kept(&p, &seen));
	replay(&p, &now, LATENCY_POLICY_KEEP, 0, 0);
	assert_true(latency_policy_is_kept(&p, &seen));
	replay(&p, &now, LATENCY_POLICY_KEEP - 1, 0, 0);
	assert_false(latency_policy_is_kept(&p, &seen));
	assert_false(latency_policy_is_kept(&p, &seen));
}

/* One stat each 4 ms, for a minute. */
static void test_latency_policy__a_request_now_and_then_does_not_keep_it(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;
	uint32_t seen = 0;

	(void)state;
	latency_policy_hold(&p, 0);
	for (unsigned k = 0; k < 12000; k++) {
		assert_int_equal(replay(&p, &now, 2, 2, 0), 0);
		assert_false(latency_policy_is_kept(&p, &seen));
	}
}

static void test_latency_policy__after_its_end_there_is_a_pause(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;

	(void)state;
	latency_policy_hold(&p, 0);
	latency_policy_end(&p, now);
	assert_int_equal(replay(&p, &now, 1000, 1, 0), LATENCY_POLICY_PAUSE_MS);
}

static void test_latency_policy__who_wants_less_asks_meanwhile(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;

	(void)state;
	latency_policy_hold(&p, 20);
	assert_int_equal(replay(&p, &now, 1000, 1, 0), LATENCY_POLICY_RUN);
	latency_policy_hold(&p, 0);
	assert_int_equal(replay(&p, &now, 1000, 1, 0), 0);
}

/* Of two mounts one is busy; the other, which wants less, has a request now and then. */
static void test_latency_policy__requests_of_another_value_do_not_count(void **state)
{
	struct latency_policy p = LATENCY_POLICY_INIT;
	int64_t now = 1000;
	uint32_t seen = 0;

	(void)state;
	latency_policy_hold(&p, 20);
	for (unsigned k = 0; k < 1000; k++) {
		replay(&p, &now, 100, 1, 20);
		assert_true(latency_policy_is_kept(&p, &seen));
		assert_int_equal(replay(&p, &now, 1, 0, 0), 0);
	}
	/* Nor is what one of them had asked for kept by the other. */
	latency_policy_hold(&p, 0);
	seen = 0;
	replay(&p, &now, 1000, 0, 20);
	assert_false(latency_policy_is_kept(&p, &seen));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_latency_policy__a_run_of_close_requests_asks),
		cmocka_unit_test(test_latency_policy__a_file_now_and_then_asks_for_nothing),
		cmocka_unit_test(test_latency_policy__a_pause_begins_another_run),
		cmocka_unit_test(test_latency_policy__what_is_held_is_not_asked_for_again),
		cmocka_unit_test(test_latency_policy__enough_requests_keep_it),
		cmocka_unit_test(test_latency_policy__a_request_now_and_then_does_not_keep_it),
		cmocka_unit_test(test_latency_policy__after_its_end_there_is_a_pause),
		cmocka_unit_test(test_latency_policy__who_wants_less_asks_meanwhile),
		cmocka_unit_test(test_latency_policy__requests_of_another_value_do_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
