// SPDX-License-Identifier: Apache-2.0
#include "veneer/hash.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* What is on disk depends on these numbers. */
static void test_hash__checksum_is_xxh64_of_seed_0(void **state)
{
	(void)state;
	assert_true(hash_checksum("", 0) == UINT64_C(0xef46db3751d8e999));
	assert_true(hash_checksum("abc", 3) == UINT64_C(0x44bc2cf5ad770999));
}

static void test_hash__key_depends_on_bytes_length_and_seed(void **state)
{
	uint64_t h = hash_key("name", 4, 1);

	(void)state;
	assert_true(h == hash_key("name", 4, 1));
	assert_true(h != hash_key("name", 4, 2));
	assert_true(h != hash_key("name", 3, 1));
	assert_true(h != hash_key("nane", 4, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hash__checksum_is_xxh64_of_seed_0),
		cmocka_unit_test(test_hash__key_depends_on_bytes_length_and_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
