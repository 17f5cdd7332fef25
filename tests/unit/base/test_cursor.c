// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_cursor__reading_past_the_end_is_bad_and_zero(void **state)
{
	static const uint8_t bytes[] = { 0xff, 0xff, 0xff };
	struct cursor c = cursor_over(bytes, sizeof(bytes));

	(void)state;
	assert_int_equal(cursor_u16(&c), 0xffff);
	assert_false(c.bad);
	assert_int_equal(cursor_u32(&c), 0);
	assert_true(c.bad);
	/* Also what would have fitted. */
	assert_int_equal(cursor_u8(&c), 0);
	assert_null(cursor_bytes(&c, 0));
	assert_int_equal(cursor_left(&c), 0);
}

static void test_cursor__over_nothing_is_at_its_end(void **state)
{
	struct cursor c = cursor_over("", 0);

	(void)state;
	assert_int_equal(cursor_left(&c), 0);
	assert_non_null(cursor_bytes(&c, 0));
	assert_false(c.bad);
	assert_null(cursor_bytes(&c, SIZE_MAX));
	assert_true(c.bad);
	assert_int_equal(cursor_u64(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cursor__reading_past_the_end_is_bad_and_zero),
		cmocka_unit_test(test_cursor__over_nothing_is_at_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
