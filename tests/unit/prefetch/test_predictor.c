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

static size_t ask(enum predictor_kind kind, size_t limit, uint64_t seed)
{
	const struct predictor_question q = {
		.kind = kind, .starts = starts, .limit = limit, .bound = BOUND, .seed = seed
	};

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
	for (int kind = 0; kind < PREDICTOR_KINDS; kind++)
		assert_int_equal(ask((enum predictor_kind)kind, 10, 1), 0);
}

static void test_predictor__after_one_start_guesses_the_first_of_it(void **state)
{
	(void)state;
	start(0xfff0);
	assert_int_equal(ask(PREDICTOR_DEFAULT, 3, 1), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(guesses[i].item, 4 + i);
}

static void test_predictor__leaves_out_what_came_once_of_many(void **state)
{
	(void)state;
	start(0x7);
	start(0x3);
	start(0x3);
	assert_int_equal(ask(PREDICTOR_DEFAULT, 10, 1), 2);
	assert_false(guessed(2, 2));
}

static void test_predictor__forgives_one_absence(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		start(0x3);
	start(0x1);
	assert_true(guessed(ask(PREDICTOR_DEFAULT, 10, 1), 1));
	for (int i = 0; i < 8; i++)
		start(0x1);
	assert_false(guessed(ask(PREDICTOR_DEFAULT, 10, 1), 1));
}

/* A job that every third start runs. */
static void test_predictor__finds_what_returns_at_intervals(void **state)
{
	unsigned wrong = 0;

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		if (i > 6)
			wrong += guessed(ask(PREDICTOR_DEFAULT, 1, 1), 5) != (i % 3 == 0);
		start(i % 3 == 0 ? 0x21 : 0x1);
	}
	assert_int_equal(wrong, 0);
}

static void test_predictor__what_has_returned_is_not_limited(void **state)
{
	(void)state;
	start(0xff);
	assert_int_equal(ask(PREDICTOR_DEFAULT, 4, 1), 4);
	start(0xff);
	assert_int_equal(ask(PREDICTOR_DEFAULT, 4, 1), 8);
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

static void test_predictor__latest_is_the_last_ones_first(void **state)
{
	(void)state;
	start(0x7ff);
	start(0x3);
	assert_int_equal(ask(PREDICTOR_LATEST, 3, 1), 3);
	assert_int_equal(guesses[0].item, 1);
	assert_int_equal(guesses[1].item, 0);
	assert_int_equal(guesses[2].item, 10);
}

static void test_predictor__draws_by_count_and_seed(void **state)
{
	size_t often = 0;

	(void)state;
	for (int i = 0; i < 30; i++)
		start(i ? 0x1 : 0x3);
	for (uint64_t seed = 1; seed <= 310; seed++) {
		size_t first;

		assert_int_equal(ask(PREDICTOR_DRAW, 1, seed), 1);
		first = guesses[0].item;
		assert_int_equal(ask(PREDICTOR_DRAW, 1, seed), 1);
		assert_int_equal(guesses[0].item, first);
		often += first == 0;
	}
	/* 30 of 31 times. */
	assert_true(often > 285 && often < 310);
	/* Nothing twice. */
	start(UINT64_MAX);
	assert_int_equal(ask(PREDICTOR_DRAW, ITEMS, 7), ITEMS);
	for (size_t i = 0; i < ITEMS; i++)
		assert_true(guessed(ITEMS, i));
}

static void test_predictor__history_of_any_length_is_minded(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		start(0x1);
		assert_int_equal(ask(PREDICTOR_DEFAULT, 10, 1), 1);
	}
	assert_true(predictor_chance(&items[0], starts) > 0.95);
	/* Bits from before the first start mean nothing. */
	items[0].seen = ~1ull;
	assert_true(predictor_chance(&items[0], 1) == 0);
}

static void test_predictor__has_names(void **state)
{
	(void)state;
	assert_int_equal(predictor_by_name("default"), PREDICTOR_DEFAULT);
	assert_int_equal(predictor_by_name("latest"), PREDICTOR_LATEST);
	assert_int_equal(predictor_by_name("draw"), PREDICTOR_DRAW);
	assert_int_equal(predictor_by_name("oracle"), PREDICTOR_KINDS);
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
		TEST(latest_is_the_last_ones_first),
		TEST(draws_by_count_and_seed),
		TEST(history_of_any_length_is_minded),
		TEST(has_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
