// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/utf8.h"

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
		"\x80",
		"\xff",
		"\xc3",
		"\xc3!",
		"\xc0\xaf",
		"\xe0\x80\xaf",
		"\xed\xa0\x80",
		"\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80",
		"\xf0\x9f\x90",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		assert_int_equal(LEN(none[i]), 0);
}

static void test_utf8__what_steers_a_terminal_or_a_reader(void **state)
{
	static const char *const steers[] = {
		"\n", "\033", "\x7f", "\xc2\x80", "\xc2\x9b",
		"\xc2\x9f", "\x9b", "\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\xa8", "\xe2\x80\xae",
		"\xe2\x81\xa6", "\xe2\x81\xa9",
	}, *const harmless[] = {
		"a", " ", "\xc2\xa0", "\xc3\xa4", "\xff",
		"\xa4", "\xd8\x9d", "\xe2\x80\x8d", "\xe2\x80\xa6", "\xe2\x80\xaf", "\xe2\x81\xa5",
		"\xe2\x82\xac", "\xf0\x9f\x90\xa7",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(steers) / sizeof(*steers); i++)
		assert_true(utf8_is_control((const unsigned char *)steers[i], LEN(steers[i])));
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
		assert_false(utf8_is_control((const unsigned char *)harmless[i], LEN(harmless[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8__characters),
		cmocka_unit_test(test_utf8__what_is_none),
		cmocka_unit_test(test_utf8__what_steers_a_terminal_or_a_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
