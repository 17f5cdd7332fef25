// SPDX-License-Identifier: Apache-2.0
/* That a server's session is as heavy as its mounts: tests/integration/test_fair_share.py. */
#include "veneer/sys/autogroup_weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The weight of a nice value in the kernel's scheduler (sched_prio_to_weight; 1024 is nice 0), from
 * -20 to 0. */
static const unsigned weights[] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548,
	7620,  6100,  4904,  3906,  3121,  2501,  1991,	 1586,	1277,  1024,
};

static void test_autogroup_weight__weighs_as_many_sessions_as_there_are_mounts(void **state)
{
	(void)state;
	assert_int_equal(autogroup_weight_nice(0), 0);
	assert_int_equal(autogroup_weight_nice(1), 0);
	for (unsigned n = 2; n <= 86; n++) {
		const int nice = autogroup_weight_nice(n);
		const double weight = weights[20 + nice] / 1024.0;

		assert_true(nice >= -20 && nice < 0);
		assert_true(weight > n * 0.87 && weight < n * 1.15);
	}
}

static void test_autogroup_weight__no_more_than_the_scheduler_has(void **state)
{
	(void)state;
	assert_int_equal(autogroup_weight_nice(100), -20);
	assert_int_equal(autogroup_weight_nice(SIZE_MAX), -20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_autogroup_weight__weighs_as_many_sessions_as_there_are_mounts),
		cmocka_unit_test(test_autogroup_weight__no_more_than_the_scheduler_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
