// SPDX-License-Identifier: Apache-2.0
#include "veneer/stats.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8
#define BUMPS 20000

static char text[4096];

static void append(void *arg, const char *name, uint64_t value)
{
	size_t len = strlen(text);

	assert_ptr_equal(arg, text);
	snprintf(text + len, sizeof(text) - len, "%s=%llu\n", name, (unsigned long long)value);
}

static const char *render(void)
{
	*text = '\0';
	stats_each(append, text);
	return text;
}

static void test_stats__every_counter_has_a_line_and_requests_only_if_they_came(void **state)
{
	(void)state;
	assert_non_null(strstr(render(), "COPY-UPS=0\n"));
	assert_non_null(strstr(text, "COPY-UP BYTES=0\n"));
	assert_non_null(strstr(text, "MAP RECORDS=0\n"));
	assert_non_null(strstr(text, "DESCRIPTOR HITS=0\n"));
	assert_non_null(strstr(text, "DESCRIPTOR MISSES=0\n"));
	assert_non_null(strstr(text, "REQUESTS=0\n"));
	assert_null(strstr(text, "REQUESTS LOOKUP"));
	stats_count_request(1);
	stats_count_request(15);
	stats_count_request(15);
	assert_non_null(strstr(render(), "REQUESTS LOOKUP=1\n"));
	assert_non_null(strstr(text, "REQUESTS READ=2\n"));
	assert_non_null(strstr(text, "REQUESTS=3\n"));
}

static void test_stats__unknown_opcodes_are_counted_together(void **state)
{
	uint64_t before = stats_requests();

	(void)state;
	stats_count_request(0);
	stats_count_request(7); /* never given out */
	stats_count_request(64);
	stats_count_request(UINT32_MAX);
	assert_int_equal(stats_requests(), before + 4);
	assert_non_null(strstr(render(), "REQUESTS OTHER=4\n"));
}

static void *bump(void *arg)
{
	for (int i = 0; i < BUMPS; i++)
		stats_add(STATS_COPYUP_BYTES, 3);
	return arg;
}

static void test_stats__no_bump_of_any_thread_is_lost(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, bump, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(stats_get(STATS_COPYUP_BYTES), 3ull * THREADS * BUMPS);
	assert_int_equal(stats_get(STATS_COPYUPS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stats__every_counter_has_a_line_and_requests_only_if_they_came),
		cmocka_unit_test(test_stats__unknown_opcodes_are_counted_together),
		cmocka_unit_test(test_stats__no_bump_of_any_thread_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
