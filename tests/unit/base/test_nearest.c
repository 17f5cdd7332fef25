// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_nearest__slips_are_counted(void **state)
{
	static const struct {
		const char *a, *b;
		unsigned n;
	} table[] = {
		{ "", "", 0 },
		{ "", "du", 2 },
		{ "umount", "umount", 0 },
		{ "umuont", "umount", 1 },
		{ "umout", "umount", 1 },
		{ "unmount", "umount", 1 },
		{ "stat", "stats", 1 },
		{ "sizze", "size", 1 },
		{ "check", "inspect", 5 },
		{ "abcd", "badc", 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		assert_int_equal(nearest_distance(table[i].a, table[i].b), table[i].n);
		assert_int_equal(nearest_distance(table[i].b, table[i].a), table[i].n);
	}
}

static void test_nearest__long_words_are_far_from_all(void **state)
{
	char word[40];

	(void)state;
	memset(word, 'a', sizeof(word));
	word[31] = '\0';
	assert_int_equal(nearest_distance(word, word), 0);
	word[31] = 'a';
	word[32] = '\0';
	assert_int_equal(nearest_distance(word, "umount"), NEAREST_FAR);
	assert_int_equal(nearest_distance("umount", word), NEAREST_FAR);
}

static void test_nearest__short_words_allow_one_slip(void **state)
{
	(void)state;
	assert_true(nearest_is_meant("umuont", "umount"));
	assert_true(nearest_is_meant("unmounnt", "umount"));
	assert_true(nearest_is_meant("tpo", "top"));
	assert_false(nearest_is_meant("to", "du"));
	assert_false(nearest_is_meant("umount", "umount"));
	assert_false(nearest_is_meant("overlay", "umount"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearest__slips_are_counted),
		cmocka_unit_test(test_nearest__long_words_are_far_from_all),
		cmocka_unit_test(test_nearest__short_words_allow_one_slip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
