// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The format on disk depends on these numbers. */
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
	assert_true(h != hash_key("same", 4, 1));
}

/* Names that fall into one bucket here must not do so in the next process. */
static void test_hash__key_is_another_one_in_another_process(void **state)
{
	char self[4096], command[4200], text[64] = "";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	FILE *other;

	(void)state;
	assert_true(n > 0);
	self[n] = '\0';
	snprintf(command, sizeof(command), "'%s' key", self);
	other = popen(command, "r");
	assert_non_null(other);
	assert_non_null(fgets(text, sizeof(text), other));
	assert_int_equal(pclose(other), 0);
	assert_true(strtoull(text, NULL, 16) != 0);
	assert_true(strtoull(text, NULL, 16) != hash_key("name", 4, 1));
}

static void test_hash__key_is_that_of_another_process_with_its_secret(void **state)
{
	const uint64_t own = hash_secret(), before = hash_key("name", 4, 1);

	(void)state;
	hash_use_secret(own + 1);
	assert_true(hash_secret() == own + 1);
	assert_true(hash_key("name", 4, 1) != before);
	hash_use_secret(own);
	assert_true(hash_key("name", 4, 1) == before);
}

/* The sums of a delta depend on these numbers. */
static void test_hash__stream_is_xxh3_of_all_pieces(void **state)
{
	struct hash_stream *s = hash_stream_new();
	char bytes[1000];
	uint64_t whole;

	(void)state;
	assert_non_null(s);
	for (size_t k = 0; k < sizeof(bytes); k++)
		bytes[k] = (char)k;
	assert_true(hash_stream_take(s) == UINT64_C(0x2d06800538d394c2));
	hash_stream_add(s, "abc", 3);
	assert_true(hash_stream_take(s) == UINT64_C(0x78af5f94892f3950));
	hash_stream_add(s, bytes, sizeof(bytes));
	whole = hash_stream_take(s);
	for (size_t at = 0, n; at < sizeof(bytes); at += n) {
		n = at % 7 + 1 < sizeof(bytes) - at ? at % 7 + 1 : sizeof(bytes) - at;
		hash_stream_add(s, bytes + at, n);
		hash_stream_add(s, bytes, 0);
	}
	assert_true(hash_stream_take(s) == whole);
	hash_stream_free(s);
	hash_stream_free(NULL);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "key")) {
		printf("%llx\n", (unsigned long long)hash_key("name", 4, 1));
		return 0;
	}

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hash__checksum_is_xxh64_of_seed_0),
		cmocka_unit_test(test_hash__key_depends_on_bytes_length_and_seed),
		cmocka_unit_test(test_hash__key_is_another_one_in_another_process),
		cmocka_unit_test(test_hash__key_is_that_of_another_process_with_its_secret),
		cmocka_unit_test(test_hash__stream_is_xxh3_of_all_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
