// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/buf.h"

#include "veneer/base/cursor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_buf__numbers_are_little_endian(void **state)
{
	static const uint8_t want[] = { 1, 2, 1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1 };
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(buf_put_u8(&b, 1), 0);
	assert_int_equal(buf_put_u16(&b, 0x0102), 0);
	assert_int_equal(buf_put_u32(&b, 0x01020304), 0);
	assert_int_equal(buf_put_u64(&b, 0x0102030405060708), 0);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));

	struct cursor c = cursor_over(b.data, b.len);

	assert_int_equal(cursor_u8(&c), 1);
	assert_int_equal(cursor_u16(&c), 0x0102);
	assert_int_equal(cursor_u32(&c), 0x01020304);
	assert_int_equal(cursor_u64(&c), 0x0102030405060708);
	assert_int_equal(cursor_left(&c), 0);
	assert_false(c.bad);
	buf_release(&b);
	assert_null(b.data);
	assert_int_equal(b.len + b.cap, 0);
}

static void test_buf__grows_and_keeps_what_it_holds(void **state)
{
	struct buf b = { 0 };
	char piece[1000];
	size_t total = 0;

	(void)state;
	for (size_t i = 0; i < 500; i++) {
		size_t len = (i * 37) % sizeof(piece);

		memset(piece, (int)i, len);
		assert_int_equal(buf_put(&b, piece, len), 0);
		total += len;
	}
	assert_int_equal(b.len, total);

	struct cursor c = cursor_over(b.data, b.len);

	for (size_t i = 0; i < 500; i++) {
		size_t len = (i * 37) % sizeof(piece);
		const uint8_t *p = cursor_bytes(&c, len);

		assert_non_null(p);
		memset(piece, (int)i, len);
		assert_memory_equal(p, piece, len);
	}
	buf_release(&b);
}

static void test_buf__impossible_length_appends_nothing(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(buf_put(&b, "abc", 3), 0);
	assert_int_equal(buf_put(&b, "x", SIZE_MAX), -ENOMEM);
	assert_int_equal(buf_put(&b, "x", SIZE_MAX - 3), -ENOMEM);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);
	buf_release(&b);
}

static void test_buf__empty_put_needs_no_pointer(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(buf_put(&b, NULL, 0), 0);
	assert_int_equal(b.len, 0);
	buf_release(&b);
}

static void test_buf__zeros_are_told_to_the_last_byte(void **state)
{
	char bytes[100] = { 0 };

	(void)state;
	assert_true(buf_is_zero(bytes, 0) && buf_is_zero(bytes, 1) &&
		    buf_is_zero(bytes, sizeof(bytes)));
	bytes[99] = 1;
	assert_true(buf_is_zero(bytes, 99));
	assert_false(buf_is_zero(bytes, 100));
	bytes[0] = 1;
	assert_false(buf_is_zero(bytes, 1));
}

static void test_buf__texts_come_one_after_the_other(void **state)
{
	struct buf b = { 0 };
	size_t at = 0;

	(void)state;
	assert_null(buf_next_text(&b, &at));
	assert_int_equal(buf_put(&b, "one", 4), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_int_equal(buf_put(&b, "three", 6), 0);
	assert_string_equal(buf_next_text(&b, &at), "one");
	assert_string_equal(buf_next_text(&b, &at), "");
	assert_string_equal(buf_next_text(&b, &at), "three");
	assert_null(buf_next_text(&b, &at));
	assert_null(buf_next_text(&b, &at));
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buf__numbers_are_little_endian),
		cmocka_unit_test(test_buf__grows_and_keeps_what_it_holds),
		cmocka_unit_test(test_buf__impossible_length_appends_nothing),
		cmocka_unit_test(test_buf__empty_put_needs_no_pointer),
		cmocka_unit_test(test_buf__zeros_are_told_to_the_last_byte),
		cmocka_unit_test(test_buf__texts_come_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
