// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/base/promote_policy.h"

static void test_promote_policy__what_was_written_most_comes_first(void **state)
{
	struct promote_policy_file f[] = { { .id = 1, .writes = 5000 },
					   { .id = 2, .writes = 9000, .missing = 7 },
					   { .id = 3, .writes = 5000, .ends = true } };

	(void)state;
	assert_int_equal(promote_policy_pass(127, 128), 0);
	assert_int_equal(promote_policy_pass(113, 128), 0);
	assert_int_equal(promote_policy_pass(112, 128), 1);
	assert_int_equal(promote_policy_pass(96, 128), 2);
	assert_int_equal(promote_policy_pass(65, 128), PROMOTE_POLICY_PASSES - 1);
	/* What is not taken at all, and the last chunk of a file. */
	assert_int_equal(promote_policy_pass(0, 128), PROMOTE_POLICY_PASSES - 1);
	assert_int_equal(promote_policy_pass(0, 1), PROMOTE_POLICY_PASSES - 1);
	assert_true(promote_policy_pass(2, 3) < PROMOTE_POLICY_PASSES);
	promote_policy_order(f, 3);
	assert_int_equal(f[0].id, 2);
	assert_int_equal(f[1].id, 3);
	assert_int_equal(f[2].id, 1);
}

static void test_promote_policy__takes_chunks_more_than_half_own(void **state)
{
	(void)state;
	assert_false(promote_policy_takes_chunk(0, 128));
	assert_false(promote_policy_takes_chunk(64, 128));
	assert_true(promote_policy_takes_chunk(65, 128));
	assert_true(promote_policy_takes_chunk(127, 128));
	/* There is nothing left to do. */
	assert_false(promote_policy_takes_chunk(128, 128));
	/* The last one of a file is as long as it is. */
	assert_true(promote_policy_takes_chunk(2, 3));
	assert_false(promote_policy_takes_chunk(1, 2));
	assert_false(promote_policy_takes_chunk(0, 1));
}

static void test_promote_policy__first_what_leaves_the_map_then_what_costs_least(void **state)
{
	struct promote_policy_file files[] = {
		{ .id = 1, .missing = 500, .ends = false },
		{ .id = 2, .missing = 900, .ends = true },
		{ .id = 3, .missing = 10, .ends = false },
		{ .id = 4, .missing = 0, .ends = true },
		{ .id = 5, .missing = 900, .ends = true },
		{ .id = 6, .missing = 0, .ends = true },
	};
	const uint64_t want[] = { 4, 6, 2, 5, 3, 1 };

	(void)state;
	promote_policy_order(NULL, 0);
	promote_policy_order(files, 6);
	for (size_t k = 0; k < 6; k++)
		assert_int_equal(files[k].id, want[k]);
}

static void test_promote_policy__rate_is_kept_over_time(void **state)
{
	struct promote_policy_rate r = { .rate = 1000000 };
	uint64_t now = 5000, done = 0;

	(void)state;
	while (now < 65000) {
		uint64_t delay = promote_policy_delay_ms(&r, now);

		now += delay;
		if (delay)
			continue;
		promote_policy_spend(&r, 123456);
		done += 123456;
		now++;
	}
	/* A minute's worth, and what one step may be too much. */
	assert_in_range(done, 59 * 1000000, 60 * 1000000 + 2 * 123456);
}

static void test_promote_policy__at_most_a_second_is_saved_up(void **state)
{
	struct promote_policy_rate r = { .rate = 1000000 };

	(void)state;
	promote_policy_delay_ms(&r, 0);
	assert_int_equal(promote_policy_delay_ms(&r, 3600 * 1000), 0);
	promote_policy_spend(&r, 3000000);
	/* Two seconds too much. */
	assert_in_range(promote_policy_delay_ms(&r, 3600 * 1000), 2000, 2001);
	assert_in_range(promote_policy_delay_ms(&r, 3600 * 1000 + 1500), 500, 501);
	assert_int_equal(promote_policy_delay_ms(&r, 3600 * 1000 + 2001), 0);
}

static void test_promote_policy__small_rates_and_steps_lose_nothing(void **state)
{
	struct promote_policy_rate r = { .rate = 3 };

	(void)state;
	promote_policy_delay_ms(&r, 0);
	promote_policy_spend(&r, 3);
	for (uint64_t now = 1; now <= 999; now++)
		promote_policy_delay_ms(&r, now);
	assert_true(promote_policy_delay_ms(&r, 999) > 0);
	assert_int_equal(promote_policy_delay_ms(&r, 1002), 0);
}

static void test_promote_policy__no_rate_no_delay_and_no_overflow(void **state)
{
	struct promote_policy_rate r = { 0 };

	(void)state;
	promote_policy_spend(&r, UINT64_MAX);
	assert_int_equal(promote_policy_delay_ms(&r, 7), 0);
	r = (struct promote_policy_rate){ .rate = UINT64_MAX };
	assert_int_equal(promote_policy_delay_ms(&r, 0), 0);
	assert_int_equal(promote_policy_delay_ms(&r, UINT64_MAX), 0);
	r = (struct promote_policy_rate){ .rate = 1 };
	promote_policy_delay_ms(&r, 0);
	promote_policy_spend(&r, UINT64_MAX);
	promote_policy_spend(&r, UINT64_MAX);
	assert_true(promote_policy_delay_ms(&r, 1) > 1000000);
	/* A clock that was set back gives nothing. */
	r = (struct promote_policy_rate){ .rate = 1000 };
	promote_policy_delay_ms(&r, 50000);
	promote_policy_spend(&r, 1000);
	assert_true(promote_policy_delay_ms(&r, 40000) > 0);
}

static void test_promote_policy__quiet_is_a_second_without_a_request(void **state)
{
	struct promote_policy_quiet q = { 0 };

	(void)state;
	assert_false(promote_policy_is_quiet(&q, 0, 100));
	assert_false(promote_policy_is_quiet(&q, 0, 1099));
	assert_true(promote_policy_is_quiet(&q, 0, 1100));
	assert_true(promote_policy_is_quiet(&q, 0, 9000));
	assert_false(promote_policy_is_quiet(&q, 1, 9001));
	assert_false(promote_policy_is_quiet(&q, 1, 10000));
	assert_false(promote_policy_is_quiet(&q, 2, 10001));
	assert_true(promote_policy_is_quiet(&q, 2, 11001));
}

static void test_promote_policy__pressure_stops_it_and_ignorance_does_not(void **state)
{
	(void)state;
	assert_false(promote_policy_is_pressed(PROMOTE_POLICY_AUTO, -1, -1));
	assert_false(promote_policy_is_pressed(PROMOTE_POLICY_AUTO, 0, 0));
	assert_false(promote_policy_is_pressed(PROMOTE_POLICY_AUTO, PROMOTE_POLICY_MEMORY_STALL_MAX,
					       PROMOTE_POLICY_IO_STALL_MAX));
	assert_true(promote_policy_is_pressed(PROMOTE_POLICY_AUTO,
					      PROMOTE_POLICY_MEMORY_STALL_MAX + 1, -1));
	assert_true(promote_policy_is_pressed(PROMOTE_POLICY_AUTO, -1,
					      PROMOTE_POLICY_IO_STALL_MAX + 1));
	/* The writer of a file makes the disk busy itself. */
	assert_false(promote_policy_is_pressed(PROMOTE_POLICY_WRITTEN, -1,
					       PROMOTE_POLICY_IO_STALL_MAX + 1));
	assert_true(promote_policy_is_pressed(PROMOTE_POLICY_WRITTEN, -1,
					      PROMOTE_POLICY_IO_STALL_MAX_WRITTEN + 1));
	assert_true(promote_policy_is_pressed(PROMOTE_POLICY_WRITTEN,
					      PROMOTE_POLICY_MEMORY_STALL_MAX + 1, -1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_promote_policy__takes_chunks_more_than_half_own),
		cmocka_unit_test(test_promote_policy__what_was_written_most_comes_first),
		cmocka_unit_test(
			test_promote_policy__first_what_leaves_the_map_then_what_costs_least),
		cmocka_unit_test(test_promote_policy__rate_is_kept_over_time),
		cmocka_unit_test(test_promote_policy__at_most_a_second_is_saved_up),
		cmocka_unit_test(test_promote_policy__small_rates_and_steps_lose_nothing),
		cmocka_unit_test(test_promote_policy__no_rate_no_delay_and_no_overflow),
		cmocka_unit_test(test_promote_policy__quiet_is_a_second_without_a_request),
		cmocka_unit_test(test_promote_policy__pressure_stops_it_and_ignorance_does_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
