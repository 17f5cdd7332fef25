// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/cache_policy.h"

#include "veneer/base/htab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 20000
#define BUDGET	100 /* entries of one byte */

static struct cache_policy policy;
static struct cache_policy_entry entries[ENTRIES];
static bool is_in[ENTRIES], is_pinned[ENTRIES];

static bool may_go(const struct cache_policy_entry *e)
{
	return !is_pinned[e - entries];
}

static int setup(void **state)
{
	(void)state;
	memset(is_in, 0, sizeof(is_in));
	memset(is_pinned, 0, sizeof(is_pinned));
	cache_policy_init(&policy, BUDGET);
	return 0;
}

/* As a cache would: in the budget, one use. True: it was there. */
static bool use(unsigned i, bool is_again)
{
	bool was_in = is_in[i];

	if (!was_in) {
		while (policy.bytes[CACHE_POLICY_PROBATION] +
			       policy.bytes[CACHE_POLICY_PROTECTED] >=
		       BUDGET) {
			struct cache_policy_entry *e = cache_policy_victim(&policy, may_go);

			assert_non_null(e);
			cache_policy_remove(&policy, e, true);
			is_in[e - entries] = false;
		}
		cache_policy_add(&policy, &entries[i], i * 0x9e3779b97f4a7c15ull + 1, 1);
		is_in[i] = true;
	}
	cache_policy_touch(&policy, &entries[i], was_in && is_again);
	return was_in;
}

static unsigned count_in(unsigned from, unsigned to)
{
	unsigned n = 0;

	for (unsigned i = from; i < to; i++)
		n += is_in[i];
	return n;
}

static void test_cache_policy__scan_of_ten_budgets_leaves_the_hot_set(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < 60; i++)
			use(i, true);
	/* Each entry of the scan is met several times in a row, and no part of it twice. */
	for (unsigned i = 1000; i < 1000 + 10 * BUDGET; i++)
		for (unsigned piece = 0; piece < 4; piece++)
			use(i, false);
	assert_int_equal(count_in(0, 60), 60);
	assert_int_equal(count_in(0, ENTRIES), BUDGET);
}

static void test_cache_policy__what_was_used_once_goes_first_in_first_out(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUDGET; i++)
		use(i, false);
	use(0, false); /* another part of it */
	use(500, false);
	assert_false(is_in[0]);
	use(501, false);
	assert_false(is_in[1]);
	assert_true(is_in[2]);
}

static void test_cache_policy__what_comes_back_is_protected(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUDGET + 10; i++)
		use(i, false);
	assert_int_equal(count_in(0, 10), 0);
	for (unsigned i = 0; i < 10; i++)
		use(i, false);
	for (unsigned i = 1000; i < 1000 + 10 * BUDGET; i++)
		use(i, false);
	assert_int_equal(count_in(0, 10), 10);
}

static void test_cache_policy__what_left_long_ago_is_forgotten(void **state)
{
	(void)state;
	use(0, false);
	for (unsigned i = 1000; i < 1000 + 10 * BUDGET; i++)
		use(i, false);
	use(0, false);
	assert_int_equal(entries[0].queue, CACHE_POLICY_PROBATION);
}

static void test_cache_policy__protected_gives_way_by_last_use(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < BUDGET; i++)
			use(i, true);
	use(0, true);
	use(500, false);
	assert_true(is_in[0]);
	assert_false(is_in[1]);
	/* A new hot set takes the place of the old one, but for what probation holds. */
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 600; i < 600 + BUDGET; i++)
			use(i, true);
	assert_true(count_in(600, 600 + BUDGET) >= BUDGET * 3 / 4);
}

static void test_cache_policy__pinned_ones_are_passed_over(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUDGET; i++) {
		use(i, false);
		is_pinned[i] = i != 70;
	}
	assert_ptr_equal(cache_policy_victim(&policy, may_go), &entries[70]);
	is_pinned[70] = true;
	assert_null(cache_policy_victim(&policy, may_go));
	cache_policy_remove(&policy, &entries[70], false);
	cache_policy_add(&policy, &entries[70], 70, 1);
	assert_int_equal(entries[70].queue, CACHE_POLICY_PROBATION); /* it had not been evicted */
}

/* Against what always works by last use: the same trace, half of it over a hot set, half a scan. */
static void test_cache_policy__hits_more_than_by_last_use_alone(void **state)
{
	static unsigned last[ENTRIES];
	unsigned hits = 0, hits_by_last_use = 0, total = 0, seed = 7;

	(void)state;
	memset(last, 0, sizeof(last));
	for (unsigned step = 1; step < 18000; step++) {
		bool is_hot = step % 4 == 0;
		unsigned i = is_hot ? (seed = seed * 1103515245 + 12345) >> 16 & 63 : 1000 + step;

		hits += use(i, true);
		/* Distinct ones since then are about as many as steps: each scanned one is new. */
		hits_by_last_use += last[i] && step - last[i] <= BUDGET;
		last[i] = step;
		total += is_hot;
	}
	assert_true(hits > total * 9 / 10);
	assert_true(hits > hits_by_last_use * 3 / 2);
}

#define row(t) cmocka_unit_test_setup(t, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_cache_policy__scan_of_ten_budgets_leaves_the_hot_set),
		row(test_cache_policy__what_was_used_once_goes_first_in_first_out),
		row(test_cache_policy__what_comes_back_is_protected),
		row(test_cache_policy__what_left_long_ago_is_forgotten),
		row(test_cache_policy__protected_gives_way_by_last_use),
		row(test_cache_policy__pinned_ones_are_passed_over),
		row(test_cache_policy__hits_more_than_by_last_use_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
