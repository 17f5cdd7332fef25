// SPDX-License-Identifier: Apache-2.0
#include "mount/options-internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct id_maps parse(const char *text)
{
	struct id_maps m = { 0 };

	assert_int_equal(idmap_parse(text, &m), 0);
	return m;
}

static void test_idmap__empty_map_is_the_identity(void **state)
{
	struct id_maps m = parse("");

	(void)state;
	assert_int_equal(m.n, 0);
	assert_int_equal(idmap_to_disk(&m, 7), 7);
	assert_int_equal(idmap_from_disk(&m, UINT32_MAX), UINT32_MAX);
}

static void test_idmap__first_number_is_the_one_on_disk(void **state)
{
	struct id_maps m = parse("0:100000:65536");

	(void)state;
	assert_int_equal(m.n, 1);
	assert_int_equal(idmap_from_disk(&m, 5), 100005);
	assert_int_equal(idmap_to_disk(&m, 100005), 5);
	free(m.rows);
}

static void test_idmap__ids_outside_every_row_overflow(void **state)
{
	struct id_maps m = parse("0:1000:1:1:100000:10");

	(void)state;
	assert_int_equal(idmap_from_disk(&m, 0), 1000);
	assert_int_equal(idmap_from_disk(&m, 10), 100009);
	assert_int_equal(idmap_from_disk(&m, 11), ID_INVALID);
	assert_int_equal(idmap_from_disk(&m, 65534), 65534);
	assert_int_equal(idmap_to_disk(&m, 999), 65534);
	assert_int_equal(idmap_to_disk(&m, 1001), 65534);
	assert_int_equal(idmap_to_disk(&m, 100010), 65534);
	free(m.rows);
}

static void test_idmap__empty_tokens_are_passed_over(void **state)
{
	static const char *const same[] = { ":0:100000:65536:65536:1:2",
					    "0:100000::65536:65536:1:2:",
					    "::0:100000:65536::65536:1:2::" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct id_maps m = parse(same[i]);

		assert_int_equal(m.n, 2);
		assert_int_equal(m.rows[0].inside, 100000);
		assert_int_equal(m.rows[1].outside, 65536);
		assert_int_equal(m.rows[1].len, 2);
		free(m.rows);
	}
}

static void test_idmap__the_last_id_can_be_mapped(void **state)
{
	struct id_maps m = parse("4294967295:0:1:0:1:4294967295");

	(void)state;
	assert_int_equal(idmap_from_disk(&m, UINT32_MAX), 0);
	assert_int_equal(idmap_to_disk(&m, UINT32_MAX), UINT32_MAX - 1);
	free(m.rows);
}

static void test_idmap__bad_text_is_refused(void **state)
{
	static const char *const bad[] = {
		"1",
		"1:2",
		"1:2:3:4",
		"a:2:3",
		"1:b:3",
		"1:2:c",
		"1:2:3x",
		"-1:2:3",
		"1:-2:3",
		" 1:2:3",
		"+1:2:3",
		"4294967296:0:1",
		"0:4294967295:2",
		"1:2:99999999999999999999",
		"1,2,3",
		"0x10:1:1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct id_maps m = { .n = 42 };

		assert_int_equal(idmap_parse(bad[i], &m), -EINVAL);
		assert_int_equal(m.n, 42);
	}
}

static void test_idmap__many_rows_round_trip(void **state)
{
	char text[64 * 500] = "";
	size_t len = 0;
	struct id_maps m;

	(void)state;
	for (unsigned i = 0; i < 500; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, ":%u:%u:3", i * 3,
					1000000 + i * 3);
	m = parse(text);
	assert_int_equal(m.n, 500);
	for (uint32_t id = 0; id < 1500; id++)
		assert_int_equal(idmap_to_disk(&m, idmap_from_disk(&m, id)), id);
	free(m.rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idmap__empty_map_is_the_identity),
		cmocka_unit_test(test_idmap__first_number_is_the_one_on_disk),
		cmocka_unit_test(test_idmap__ids_outside_every_row_overflow),
		cmocka_unit_test(test_idmap__empty_tokens_are_passed_over),
		cmocka_unit_test(test_idmap__the_last_id_can_be_mapped),
		cmocka_unit_test(test_idmap__bad_text_is_refused),
		cmocka_unit_test(test_idmap__many_rows_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
