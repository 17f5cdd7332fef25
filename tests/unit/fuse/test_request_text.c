// SPDX-License-Identifier: Apache-2.0
#include "fuse/request_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/fuse.h>

static char request[512], text[256];
static size_t size;

static void put(const void *p, size_t n)
{
	memcpy(request + size, p, n);
	size += n;
}

static void begin(uint32_t opcode, uint64_t node)
{
	const struct fuse_in_header in = { .opcode = opcode, .nodeid = node };

	size = 0;
	put(&in, sizeof(in));
}

static const char *described(void)
{
	request_text_describe(request, size, true, text, sizeof(text));
	return text;
}

static void test_request_text__names_and_ranges(void **state)
{
	const struct fuse_rename2_in rename = { .newdir = 2 };
	const struct fuse_setxattr_in set = { .size = 5 };
	const struct fuse_write_in write = { .offset = 8192, .size = 4096 };
	const struct fuse_read_in read = { .offset = 1, .size = 2 };
	const struct fuse_create_in create = { .mode = 0644 };

	(void)state;
	begin(FUSE_LOOKUP, 1);
	put("name", 5);
	assert_string_equal(described(), "LOOKUP node 1 \"name\"");
	begin(FUSE_RENAME2, 1);
	put(&rename, sizeof(rename));
	put("a\0b", 4);
	assert_string_equal(described(), "RENAME2 node 1 \"a\" to node 2 \"b\"");
	begin(FUSE_SYMLINK, 1);
	put("link\0target", 12);
	assert_string_equal(described(), "SYMLINK node 1 \"link\" to \"target\"");
	begin(FUSE_CREATE, 1);
	put(&create, sizeof(create));
	put("new", 4);
	assert_string_equal(described(), "CREATE node 1 \"new\"");
	begin(FUSE_SETXATTR, 3);
	put(&set, sizeof(set));
	put("user.a\0value", 12);
	assert_string_equal(described(), "SETXATTR node 3 \"user.a\"");
	begin(FUSE_WRITE, 3);
	put(&write, sizeof(write));
	assert_string_equal(described(), "WRITE node 3, 4096 bytes at 8192");
	begin(FUSE_READ, 3);
	put(&read, sizeof(read));
	assert_string_equal(described(), "READ node 3, 2 bytes at 1");
	begin(FUSE_GETATTR, UINT64_MAX);
	assert_string_equal(described(), "GETATTR node 18446744073709551615");
	begin(9999, 1);
	assert_string_equal(described(), "request 9999 node 1");
}

/* Each request in memory of just its size, which a sanitizer watches. */
static void test_request_text__no_request_is_read_beyond_its_end(void **state)
{
	(void)state;
	for (uint32_t opcode = 0; opcode < 60; opcode++)
		for (size_t n = 0; n < sizeof(struct fuse_in_header) + 64; n++) {
			char *cut = malloc(n ? n : 1);

			begin(opcode, 1);
			memset(request + size, 'x', 64);
			memcpy(cut, request, n);
			request_text_describe(cut, n, n % 2, text,
					      n % 3 ? sizeof(text) : 1 + n % 20);
			assert_non_null(memchr(text, '\0', sizeof(text)));
			free(cut);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_text__names_and_ranges),
		cmocka_unit_test(test_request_text__no_request_is_read_beyond_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
