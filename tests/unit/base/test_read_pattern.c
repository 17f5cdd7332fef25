// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/base/read_pattern.h"

#define BLOCK 4096u

static void test_read_pattern__reading_from_end_to_end_is_not_random(void **state)
{
	struct read_pattern p = { 0 };

	(void)state;
	for (unsigned round = 0; round < 20; round++)
		for (uint64_t off = 0; off < 10000 * BLOCK; off += BLOCK)
			read_pattern_note(&p, off, BLOCK);
	assert_false(read_pattern_is_random(&p));
	assert_int_equal(p.jumps, 19);
}

static void test_read_pattern__small_reads_anywhere_are(void **state)
{
	struct read_pattern p = { 0 };

	(void)state;
	for (unsigned k = 1; k < READ_PATTERN_JUMPS; k++)
		read_pattern_note(&p, (uint64_t)k * 2 * BLOCK, BLOCK);
	assert_false(read_pattern_is_random(&p));
	read_pattern_note(&p, 0, BLOCK);
	assert_true(read_pattern_is_random(&p));
	for (uint64_t off = BLOCK; off < 10000 * BLOCK; off += BLOCK)
		read_pattern_note(&p, off, BLOCK);
	assert_true(read_pattern_is_random(&p));
}

static void test_read_pattern__large_ones_are_not(void **state)
{
	struct read_pattern p = { 0 };

	(void)state;
	for (unsigned k = 1; k < 3 * READ_PATTERN_JUMPS; k++)
		read_pattern_note(&p, (uint64_t)k << 20, READ_PATTERN_SMALL_BYTES + 1);
	assert_false(read_pattern_is_random(&p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_pattern__reading_from_end_to_end_is_not_random),
		cmocka_unit_test(test_read_pattern__small_reads_anywhere_are),
		cmocka_unit_test(test_read_pattern__large_ones_are_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
