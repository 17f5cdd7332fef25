// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/array.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_array__doubles_and_keeps_what_it_holds(void **state)
{
	uint32_t *v = NULL;
	size_t cap = 0, moves = 0;

	(void)state;
	for (uint32_t n = 0; n < 1000; n++) {
		size_t before = cap;

		assert_int_equal(array_reserve(&v, &cap, n + 1), 0);
		assert_true(cap > n);
		assert_true(cap == before || !before || cap == before * 2);
		moves += cap != before;
		v[n] = n;
	}
	assert_in_range(moves, 1, 10);
	for (uint32_t n = 0; n < 1000; n++)
		assert_int_equal(v[n], n);
	free(v);
}

static void test_array__has_all_the_room_that_is_wanted_at_once(void **state)
{
	struct {
		uint64_t a, b;
	} *v = NULL;
	size_t cap = 0;

	(void)state;
	assert_int_equal(array_reserve(&v, &cap, 0), 0);
	assert_null(v);
	assert_int_equal(array_reserve(&v, &cap, 1001), 0);
	assert_int_equal(cap, 1001);
	v[0].a = v[1000].b = 1;
	assert_int_equal(array_reserve(&v, &cap, 1002), 0);
	assert_int_equal(cap, 2002);
	assert_int_equal(v[0].a + v[1000].b, 2);
	free(v);
}

static void test_array__room_that_is_there_moves_nothing(void **state)
{
	char *v = NULL, *before;
	size_t cap = 0, had;

	(void)state;
	assert_int_equal(array_reserve(&v, &cap, 100), 0);
	before = v;
	had = cap;
	for (size_t want = 0; want <= had; want++)
		assert_int_equal(array_reserve(&v, &cap, want), 0);
	assert_ptr_equal(v, before);
	assert_int_equal(cap, had);
	free(v);
}

static void test_array__what_cannot_be_changes_nothing(void **state)
{
	static const size_t table[] = { SIZE_MAX, SIZE_MAX / sizeof(uint64_t),
					SIZE_MAX / sizeof(uint64_t) + 2,
					PTRDIFF_MAX / sizeof(uint64_t) + 1 };
	uint64_t *v = NULL, *before;
	size_t cap = 0, had;

	(void)state;
	assert_int_equal(array_reserve(&v, &cap, SIZE_MAX), -ENOMEM);
	assert_null(v);
	assert_int_equal(cap, 0);
	assert_int_equal(array_reserve(&v, &cap, 1), 0);
	before = v;
	had = cap;
	v[0] = 1;
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		assert_int_equal(array_reserve(&v, &cap, table[i]), -ENOMEM);
	assert_ptr_equal(v, before);
	assert_int_equal(cap, had);
	assert_int_equal(v[0], 1);
	free(v);
}

static void test_array__grows_without_a_capacity(void **state)
{
	uint32_t *v = NULL, *before;

	(void)state;
	for (uint32_t n = 0; n < 1000; n++) {
		before = v;
		assert_int_equal(array_grow(&v, n), 0);
		if (n > 2 && (n & (n - 1)))
			assert_ptr_equal(v, before);
		v[n] = n;
	}
	for (uint32_t n = 0; n < 1000; n++)
		assert_int_equal(v[n], n);
	before = v;
	assert_int_equal(array_grow(&v, SIZE_MAX / 8 + 1), -ENOMEM);
	assert_ptr_equal(v, before);
	assert_int_equal(v[999], 999);
	free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_array__doubles_and_keeps_what_it_holds),
		cmocka_unit_test(test_array__has_all_the_room_that_is_wanted_at_once),
		cmocka_unit_test(test_array__room_that_is_there_moves_nothing),
		cmocka_unit_test(test_array__what_cannot_be_changes_nothing),
		cmocka_unit_test(test_array__grows_without_a_capacity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
