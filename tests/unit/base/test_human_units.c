// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/human_units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_human_units__counts_have_their_thousands_apart(void **state)
{
	(void)state;
	assert_string_equal(human_units_count(0).text, "0");
	assert_string_equal(human_units_count(999).text, "999");
	assert_string_equal(human_units_count(1000).text, "1,000");
	assert_string_equal(human_units_count(1234567).text, "1,234,567");
	assert_string_equal(human_units_count(UINT64_MAX).text, "18,446,744,073,709,551,615");
}

static void test_human_units__nouns_follow_their_number(void **state)
{
	char noun[100];

	(void)state;
	assert_string_equal(human_units_of(0, "mount").text, "0 mounts");
	assert_string_equal(human_units_of(1, "mount").text, "1 mount");
	assert_string_equal(human_units_of(1234, "mount").text, "1,234 mounts");
	assert_string_equal(human_units_of(1, "renamed directory").text, "1 renamed directory");
	assert_string_equal(human_units_of(2, "renamed directory").text, "2 renamed directories");
	assert_string_equal(human_units_of(2, "key").text, "2 keys");
	assert_string_equal(human_units_of(2, "node switch").text, "2 node switches");
	memset(noun, 'n', sizeof(noun) - 1);
	noun[sizeof(noun) - 1] = '\0';
	assert_int_equal(strlen(human_units_of(UINT64_MAX, noun).text), 26 + 1 + 32 + 1);
}

static void test_human_units__bytes_and_times_have_at_most_four_digits(void **state)
{
	(void)state;
	assert_string_equal(human_units_bytes(0).text, "0 B");
	assert_string_equal(human_units_bytes(1023).text, "1023 B");
	assert_string_equal(human_units_bytes(1024).text, "1.0 KiB");
	assert_string_equal(human_units_bytes(64ull << 20).text, "64 MiB");
	assert_string_equal(human_units_bytes(10188).text, "9.9 KiB");
	assert_string_equal(human_units_bytes(10189).text, "10 KiB");
	assert_string_equal(human_units_bytes(UINT64_MAX).text, "16 EiB");
	assert_string_equal(human_units_time(0).text, "0 us");
	assert_string_equal(human_units_time(999).text, "999 us");
	assert_string_equal(human_units_time(1500).text, "1.5 ms");
	assert_string_equal(human_units_time(3400000).text, "3.4 s");
	assert_string_equal(human_units_time(12345000000).text, "12345 s");
}

static void test_human_units__ages_have_two_units(void **state)
{
	(void)state;
	assert_string_equal(human_units_age(59).text, "59 s");
	assert_string_equal(human_units_age(60).text, "1 min");
	assert_string_equal(human_units_age(3 * 3600 + 12 * 60 + 59).text, "3 h 12 min");
	assert_string_equal(human_units_age(50 * 3600).text, "2 d 2 h");
}

static void test_human_units__rates_and_shares(void **state)
{
	(void)state;
	assert_string_equal(human_units_rate(0).text, "0");
	assert_string_equal(human_units_rate(0.34).text, "0.3");
	assert_string_equal(human_units_rate(9.94).text, "9.9");
	assert_string_equal(human_units_rate(9.96).text, "10");
	assert_string_equal(human_units_rate(1234.5).text, "1,235");
	assert_string_equal(human_units_share(0, 0).text, "-");
	assert_string_equal(human_units_share(0, 7).text, "0 %");
	assert_string_equal(human_units_share(2, 3).text, "67 %");
}

static void test_human_units__numbers_are_read_with_their_unit(void **state)
{
	uint64_t n = 7;

	(void)state;
	assert_true(human_units_scan("5", "KM", 1024, &n) && n == 5);
	assert_true(human_units_scan("5M", "KM", 1024, &n) && n == 5 << 20);
	assert_true(human_units_scan("3", "", 1, &n) && n == 3);
	assert_false(human_units_scan("", "KM", 1024, &n));
	assert_false(human_units_scan("0", "KM", 1024, &n));
	assert_false(human_units_scan("-1", "KM", 1024, &n));
	assert_false(human_units_scan("5G", "KM", 1024, &n));
	assert_false(human_units_scan("5MK", "KM", 1024, &n));
	assert_false(human_units_scan("18446744073709551615K", "KM", 1024, &n));
	assert_int_equal(n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_human_units__counts_have_their_thousands_apart),
		cmocka_unit_test(test_human_units__nouns_follow_their_number),
		cmocka_unit_test(test_human_units__bytes_and_times_have_at_most_four_digits),
		cmocka_unit_test(test_human_units__ages_have_two_units),
		cmocka_unit_test(test_human_units__rates_and_shares),
		cmocka_unit_test(test_human_units__numbers_are_read_with_their_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
