// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/predictor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS 64
#define BOUND 0.5

static struct predictor_item items[ITEMS];
static struct predictor_guess guesses[ITEMS];
static unsigned starts;

static int setup(void **state)
{
	(void)state;
	memset(items, 0, sizeof(items));
	starts = 0;
	return 0;
}

/* One start that touches the items of the mask, in their order. */
static void start(uint64_t touched)
{
	uint32_t order = 0;

	for (size_t i = 0; i < ITEMS; i++) {
		items[i].seen <<= 1;
		if (!(touched >> i & 1))
			continue;
		items[i].seen |= 1;
		items[i].count++;
		items[i].order = order++;
	}
	starts++;
}

static size_t ask(size_t limit)
{
	const struct predictor_question q = { .starts = starts, .limit = limit, .bound = BOUND };

	return predictor_ask(&q, items, ITEMS, guesses);
}

static bool guessed(size_t n, size_t item)
{
	for (size_t i = 0; i < n; i++)
		if (guesses[i].item == item)
			return true;
	return false;
}

static void test_predictor__without_history_guesses_nothing(void **state)
{
	(void)state;
	assert_int_equal(ask(10), 0);
}

static void test_predictor__after_one_start_guesses_the_first_of_it(void **state)
{
	(void)state;
	start(0xfff0);
	assert_int_equal(ask(3), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(guesses[i].item, 4 + i);
}

static void test_predictor__leaves_out_what_came_once_of_many(void **state)
{
	(void)state;
	start(0x7);
	start(0x3);
	start(0x3);
	assert_int_equal(ask(10), 2);
	assert_false(guessed(2, 2));
}

static void test_predictor__forgives_one_absence(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		start(0x3);
	start(0x1);
	assert_true(guessed(ask(10), 1));
	for (int i = 0; i < 8; i++)
		start(0x1);
	assert_false(guessed(ask(10), 1));
}

/* A job that every third start runs. */
static void test_predictor__finds_what_returns_at_intervals(void **state)
{
	unsigned wrong = 0;

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		if (i > 6)
			wrong += guessed(ask(1), 5) != (i % 3 == 0);
		start(i % 3 == 0 ? 0x21 : 0x1);
	}
	assert_int_equal(wrong, 0);
}

static void test_predictor__what_has_returned_is_not_limited(void **state)
{
	(void)state;
	start(0xff);
	assert_int_equal(ask(4), 4);
	start(0xff);
	assert_int_equal(ask(4), 8);
}

static void test_predictor__chances_are_right_on_the_average(void **state)
{
	double expected = 0, seen = 0;
	uint64_t random = 88172645463325252ull;

	(void)state;
	/* Item i is touched in i of 64 starts. */
	for (int k = 0; k < 400; k++) {
		uint64_t touched = 0;

		for (size_t i = 0; i < ITEMS; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			touched |= (uint64_t)(random % ITEMS < i) << i;
		}
		for (size_t i = 0; i < ITEMS && k >= 64; i++) {
			const double chance = predictor_chance(&items[i], starts);

			assert_true(chance >= 0 && chance <= 1);
			expected += chance;
			seen += touched >> i & 1;
		}
		start(touched);
	}
	assert_true(expected > 0.95 * seen && expected < 1.05 * seen);
}

static void test_predictor__history_of_any_length_is_minded(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		start(0x1);
		assert_int_equal(ask(10), 1);
	}
	assert_true(predictor_chance(&items[0], starts) > 0.95);
	/* Bits from before the first start mean nothing. */
	items[0].seen = ~1ull;
	assert_true(predictor_chance(&items[0], 1) == 0);
}

#define TEST(name) cmocka_unit_test_setup(test_predictor__##name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_history_guesses_nothing),
		TEST(after_one_start_guesses_the_first_of_it),
		TEST(leaves_out_what_came_once_of_many),
		TEST(forgives_one_absence),
		TEST(finds_what_returns_at_intervals),
		TEST(what_has_returned_is_not_limited),
		TEST(chances_are_right_on_the_average),
		TEST(history_of_any_length_is_minded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
