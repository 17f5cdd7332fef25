// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/sys/pressure.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* As a file with that text has it. */
static int pressure_of(const char *text)
{
	const int fd = memfd_create("pressure", 0);
	const size_t len = strlen(text);
	char path[64];
	int r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = pressure_read(path);
	close(fd);
	return r;
}

static void test_pressure__reads_the_share_of_the_last_ten_seconds(void **state)
{
	(void)state;
	assert_int_equal(pressure_of("some avg10=48.15 avg60=50.50 avg300=39.72 total=245224613\n"
				     "full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"),
			 4815);
	assert_int_equal(pressure_of("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), 0);
	assert_int_equal(pressure_of("some avg10=100.00 avg60=0.00 avg300=0.00 total=0\n"), 10000);
}

static void test_pressure__a_tenth_of_the_time_is_much(void **state)
{
	(void)state;
	assert_true(pressure_of("some avg10=0.31 avg60=90.00 avg300=0.00 total=1\n") <
		    PRESSURE_HIGH);
	assert_true(pressure_of("some avg10=9.99 avg60=0.00 avg300=0.00 total=1\n") <
		    PRESSURE_HIGH);
	assert_true(pressure_of("some avg10=10.00 avg60=0.00 avg300=0.00 total=1\n") >=
		    PRESSURE_HIGH);
}

static void test_pressure__anything_else_is_not_known(void **state)
{
	(void)state;
	assert_int_equal(pressure_of(""), -1);
	assert_int_equal(pressure_of("full avg10=1.00"), -1);
	assert_int_equal(pressure_of("some avg10="), -1);
	assert_int_equal(pressure_of("some avg10=x.00"), -1);
	assert_int_equal(pressure_some("no such resource"), -1);
	assert_int_equal(pressure_read("/dev/null"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pressure__reads_the_share_of_the_last_ten_seconds),
		cmocka_unit_test(test_pressure__a_tenth_of_the_time_is_much),
		cmocka_unit_test(test_pressure__anything_else_is_not_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
