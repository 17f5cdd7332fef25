// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/map/session_epoch.h"

static void test_session_epoch__is_the_same_within_a_boot(void **state)
{
	uint64_t a = 1, b = 2;

	(void)state;
	session_epoch_for_tests = 0;
	assert_int_equal(session_epoch_read(&a), 0);
	assert_int_equal(session_epoch_read(&b), 0);
	assert_int_equal(a, b);
}

static void test_session_epoch__table_is_of_this_boot_or_of_another(void **state)
{
	struct table t;

	(void)state;
	table_init(&t);
	session_epoch_for_tests = 5;
	t.epoch = 5;
	assert_int_equal(session_epoch_is_of(&t), 1);
	session_epoch_for_tests = 6;
	assert_int_equal(session_epoch_is_of(&t), 0);
	/* A session that no boot has. */
	t.epoch = 0;
	assert_int_equal(session_epoch_is_of(&t), 0);
	session_epoch_for_tests = 0;
	assert_int_equal(session_epoch_is_of(&t), 0);
	table_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session_epoch__is_the_same_within_a_boot),
		cmocka_unit_test(test_session_epoch__table_is_of_this_boot_or_of_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
