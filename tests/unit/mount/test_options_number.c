// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mount/options-internal.h"

static void test_options_number__integers(void **state)
{
	int64_t v = 7;

	(void)state;
	assert_true(options_number_integer("-1", &v));
	assert_int_equal(v, -1);
	assert_false(options_number_integer("", &v));
	assert_false(options_number_integer("1x", &v));
	assert_false(options_number_integer("9223372036854775808", &v));
	assert_int_equal(v, -1);
}

static void test_options_number__units_multiply(void **state)
{
	static const struct {
		const char *text;
		uint64_t value; /* 0: refused */
	} rows[] = {
		{ "1", 1 },   { "3K", 3072 },	     { "2M", 2 << 20 }, { "1G", 1 << 30 },
		{ "0", 0 },   { "-1", 0 },	     { "K", 0 },	{ "1T", 0 },
		{ "1KK", 0 }, { "17179869184G", 0 }, { "", 0 },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		uint64_t v = 0;

		assert_int_equal(options_number_scaled(rows[k].text, "KMG", 1024, &v),
				 rows[k].value != 0);
		assert_int_equal(v, rows[k].value);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_number__integers),
		cmocka_unit_test(test_options_number__units_multiply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
