// SPDX-License-Identifier: Apache-2.0
#include "veneer/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define LEN(s) utf8_len((const unsigned char *)(s))

static void test_utf8__characters(void **state)
{
	(void)state;
	assert_int_equal(LEN("a"), 1);
	assert_int_equal(LEN("\xc3\xa4!"), 2);
	assert_int_equal(LEN("\xe2\x82\xac"), 3);
	assert_int_equal(LEN("\xf0\x9f\x90\xa7"), 4);
}

static void test_utf8__what_is_none(void **state)
{
	static const char *const none[] = {
		"\x80", "\xff", "\xc3", "\xc3!", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
		"\xf0\x9f\x90",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		assert_int_equal(LEN(none[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8__characters),
		cmocka_unit_test(test_utf8__what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
