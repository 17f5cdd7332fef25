// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "veneer/layer/xino.h"

static void test_xino__first_device_leaves_numbers_as_they_are(void **state)
{
	struct xino d;

	(void)state;
	xino_init(&d);
	assert_int_equal(xino_fold(xino_index(&d, 42), 1234), 1234);
	xino_release(&d);
}

static void test_xino__index_stays_and_differs(void **state)
{
	struct xino d;

	(void)state;
	xino_init(&d);
	assert_int_equal(xino_find(&d, 7), -1);
	assert_int_equal(xino_index(&d, 7), 0);
	assert_int_equal(xino_index(&d, 9), 1);
	assert_int_equal(xino_index(&d, 7), 0);
	assert_int_equal(xino_find(&d, 9), 1);
	assert_true(xino_fold(0, 5) != xino_fold(1, 5));
	xino_release(&d);
}

static void test_xino__too_many_share_the_last_index(void **state)
{
	struct xino d;

	(void)state;
	xino_init(&d);
	for (unsigned i = 0; i < XINO_MAX; i++)
		assert_int_equal(xino_index(&d, 1000 + i), i);
	assert_int_equal(xino_index(&d, 1), XINO_MAX);
	assert_int_equal(xino_index(&d, 2), XINO_MAX);
	assert_int_equal(xino_index(&d, 1003), 3);
	xino_release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_xino__first_device_leaves_numbers_as_they_are),
		cmocka_unit_test(test_xino__index_stays_and_differs),
		cmocka_unit_test(test_xino__too_many_share_the_last_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
