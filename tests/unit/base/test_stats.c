// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/stats.h"

#include "support/counter.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8
#define BUMPS	20000

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
	assert_int_equal(counter_total(STATS_COPYUP_BYTES), 3ull * THREADS * BUMPS);
	assert_int_equal(counter_total(STATS_COPYUPS), 0);
}

static void test_stats__a_time_is_in_the_first_bucket_whose_bound_holds_it(void **state)
{
	static const struct {
		uint64_t ns;
		unsigned bucket;
	} times[] = {
		{ 0, 0 },
		{ 1, 0 },
		{ 1000, 0 },
		{ 1001, 1 },
		{ 2000, 1 },
		{ 2001, 2 },
		{ 4000, 2 },
		{ 4001, 3 },
		{ 1000000, 10 },
		{ 1024000, 10 },
		{ 1024001, 11 },
		{ 16777216000, 24 },
		{ 16777216001, 25 },
		{ UINT64_MAX, 25 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
		assert_int_equal(stats_bucket(times[i].ns), times[i].bucket);
	for (unsigned k = 0; k + 1 < STATS_BUCKETS; k++) {
		assert_int_equal(stats_bucket(stats_bound_us(k) * 1000), k);
		assert_int_equal(stats_bucket(stats_bound_us(k) * 1000 + 1), k + 1);
	}
	assert_int_equal(stats_bound_us(STATS_BUCKETS - 1), 0);
}

static void test_stats__percentiles_are_in_their_bucket_and_never_above_the_longest(void **state)
{
	struct stats_op op = { .max_ns = 0 };

	(void)state;
	assert_int_equal(stats_percentile_us(&op, 50), 0);
	op.buckets[3] = 100; /* 4 to 8 us */
	op.max_ns = 7900;
	assert_int_equal(stats_percentile_us(&op, 50), 6);
	assert_int_equal(stats_percentile_us(&op, 100), 8);
	op.max_ns = 5500;
	assert_int_equal(stats_percentile_us(&op, 99), 6);
	op.buckets[10] = 11; /* 512 to 1024 us */
	op.max_ns = 600 * 1000;
	assert_int_equal(stats_percentile_us(&op, 90), 8);
	assert_in_range(stats_percentile_us(&op, 91), 512, 600);
	assert_int_equal(stats_percentile_us(&op, 100), 600);
	op.buckets[STATS_BUCKETS - 1] = 1000;
	op.max_ns = 20000000000;
	assert_int_equal(stats_percentile_us(&op, 50), 20000000);
	op = (struct stats_op){ .max_ns = 300, .buckets = { 1 } };
	assert_int_equal(stats_percentile_us(&op, 1), 1);
	op = (struct stats_op){ .max_ns = 1000000, .buckets = { [5] = UINT64_MAX / 2 } };
	assert_in_range(stats_percentile_us(&op, 50), 16, 32);
}

static void serve(struct stats *s, uint32_t opcode, bool fails)
{
	stats_request_begin(s);
	stats_count_request(opcode);
	stats_add(STATS_READ_BYTES, 10);
	if (fails)
		stats_request_failed();
	stats_request_end();
}

static void test_stats__a_request_counts_for_its_mount_and_in_the_totals_for_good(void **state)
{
	struct stats_values before, a_seen, b_seen, all;
	struct stats *a, *b;

	(void)state;
	stats_read(NULL, &before);
	assert_int_equal(stats_new(&a), 0);
	assert_int_equal(stats_new(&b), 0);
	serve(a, 1, false);
	serve(a, 1, true);
	serve(a, 16, false);
	serve(b, 1, false);
	serve(NULL, 1, false);
	stats_read(a, &a_seen);
	stats_read(b, &b_seen);
	assert_int_equal(a_seen.ops[1].requests, 2);
	assert_int_equal(a_seen.ops[1].errors, 1);
	assert_int_equal(stats_answered(&a_seen.ops[1]), 2);
	assert_true(a_seen.ops[1].max_ns <= a_seen.ops[1].sum_ns);
	assert_int_equal(a_seen.ops[16].requests, 1);
	assert_int_equal(a_seen.ops[16].errors, 0);
	assert_int_equal(a_seen.counters[STATS_READ_BYTES], 30);
	assert_int_equal(b_seen.ops[1].requests, 1);
	assert_int_equal(b_seen.counters[STATS_READ_BYTES], 10);
	/* whether the mounts are there or not */
	for (int round = 0; round < 3; round++) {
		stats_read(NULL, &all);
		assert_int_equal(all.ops[1].requests - before.ops[1].requests, 4);
		assert_int_equal(stats_answered(&all.ops[1]) - stats_answered(&before.ops[1]), 4);
		assert_int_equal(all.ops[1].errors - before.ops[1].errors, 1);
		assert_int_equal(
			counter_total(STATS_READ_BYTES) - before.counters[STATS_READ_BYTES], 50);
		if (round < 2)
			stats_free(round ? b : a);
	}
	stats_free(NULL);
}

static void test_stats__a_thread_counts_for_whom_it_works(void **state)
{
	struct stats_values v;
	struct stats *a, *b;

	(void)state;
	assert_int_equal(stats_new(&a), 0);
	assert_int_equal(stats_new(&b), 0);
	assert_null(stats_enter(a));
	stats_add(STATS_COPYUPS, 1);
	serve(b, 1, false);
	stats_add(STATS_COPYUPS, 1);
	assert_ptr_equal(stats_enter(NULL), a);
	stats_read(a, &v);
	assert_int_equal(v.counters[STATS_COPYUPS], 2);
	assert_int_equal(v.ops[1].requests, 0);
	stats_read(b, &v);
	assert_int_equal(v.counters[STATS_COPYUPS], 0);
	stats_enter(a);
	stats_free(a); /* counts for the process from here */
	assert_null(stats_enter(NULL));
	stats_free(b);
}

static void test_stats__what_was_not_copied_is_never_less_than_nothing(void **state)
{
	struct stats_values v = { .counters = { [STATS_WHOLE_BYTES] = 1000,
						[STATS_COPYUP_BYTES] = 100,
						[STATS_FILL_BYTES] = 50 } };

	(void)state;
	assert_int_equal(stats_not_copied(&v), 850);
	v.counters[STATS_FILL_BYTES] = 5000;
	assert_int_equal(stats_not_copied(&v), 0);
}

static void test_stats__every_counter_and_kind_of_memory_has_its_own_name(void **state)
{
	(void)state;
	for (int i = 0; i < STATS_COUNTERS; i++) {
		const struct stats_name *a = stats_name((enum stats_counter)i);

		assert_true(a->line && a->group && a->key && a->help);
		for (int k = 0; k < i; k++) {
			const struct stats_name *b = stats_name((enum stats_counter)k);

			assert_string_not_equal(a->line, b->line);
			assert_false(!strcmp(a->group, b->group) && !strcmp(a->key, b->key));
		}
	}
	for (int i = 0; i < STATS_MEMORIES; i++)
		assert_non_null(stats_memory_name((enum stats_memory)i));
}

static void assert_manual_has(const char *manual, const char *name)
{
	char *quoted;

	assert_true(asprintf(&quoted, "`%s`", name) > 0);
	if (!strstr(manual, quoted))
		fail_msg("man/veneer.1.md has no %s", quoted);
	free(quoted);
}

static void test_stats__the_manual_has_every_name(void **state)
{
	FILE *f = fopen("man/veneer.1.md", "re");
	char *manual = NULL, key[64];
	size_t size = 0;

	(void)state;
	assert_non_null(f);
	assert_true(getdelim(&manual, &size, '\0', f) > 0);
	fclose(f);
	for (int i = 0; i < STATS_COUNTERS; i++) {
		const struct stats_name *n = stats_name((enum stats_counter)i);

		snprintf(key, sizeof(key), "%s.%s", n->group, n->key);
		assert_manual_has(manual, key);
		assert_manual_has(manual, n->line);
	}
	for (int i = 0; i < STATS_MEMORIES; i++)
		assert_manual_has(manual, stats_memory_name((enum stats_memory)i));
	free(manual);
}

static void test_stats__memory_comes_and_goes(void **state)
{
	char *p = malloc(1000);

	(void)state;
	assert_non_null(p);
	stats_memory_took(STATS_MEM_MAPS, p);
	assert_in_range(stats_memory(STATS_MEM_MAPS), 1000, 1100);
	stats_memory_took(STATS_MEM_MAPS, NULL);
	stats_memory_gives(STATS_MEM_MAPS, p);
	assert_int_equal(stats_memory(STATS_MEM_MAPS), 0);
	stats_memory_add(STATS_MEM_MAPS, -5); /* an owner that miscounts shows nothing absurd */
	assert_int_equal(stats_memory(STATS_MEM_MAPS), 0);
	stats_memory_add(STATS_MEM_MAPS, 5);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_stats__every_counter_has_a_line_and_requests_only_if_they_came),
		cmocka_unit_test(test_stats__unknown_opcodes_are_counted_together),
		cmocka_unit_test(test_stats__no_bump_of_any_thread_is_lost),
		cmocka_unit_test(test_stats__a_time_is_in_the_first_bucket_whose_bound_holds_it),
		cmocka_unit_test(
			test_stats__percentiles_are_in_their_bucket_and_never_above_the_longest),
		cmocka_unit_test(
			test_stats__a_request_counts_for_its_mount_and_in_the_totals_for_good),
		cmocka_unit_test(test_stats__a_thread_counts_for_whom_it_works),
		cmocka_unit_test(test_stats__what_was_not_copied_is_never_less_than_nothing),
		cmocka_unit_test(test_stats__every_counter_and_kind_of_memory_has_its_own_name),
		cmocka_unit_test(test_stats__the_manual_has_every_name),
		cmocka_unit_test(test_stats__memory_comes_and_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
