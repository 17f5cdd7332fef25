// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "veneer/base/hash.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/format.h"

static struct partial_xattr example(const char *path)
{
	struct partial_xattr m = { .file_id = 7,
				   .uuid_low = 0x89abcdef,
				   .lower_size = 1 << 30,
				   .lower_mtime_s = -5,
				   .lower_mtime_ns = 999999999 };

	strcpy(m.path, path);
	return m;
}

static void check_round_trip(const char *path)
{
	struct partial_xattr m = example(path), got;
	struct buf b = { 0 };

	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(b.len, sizeof(struct format_partial) + strlen(path));
	assert_int_equal(partial_xattr_decode(b.data, b.len, &got), 0);
	assert_int_equal(got.file_id, m.file_id);
	assert_int_equal(got.uuid_low, m.uuid_low);
	assert_int_equal(got.lower_size, m.lower_size);
	assert_int_equal(got.lower_mtime_s, m.lower_mtime_s);
	assert_int_equal(got.lower_mtime_ns, m.lower_mtime_ns);
	assert_string_equal(got.path, m.path);
	buf_release(&b);
}

static void test_partial_xattr__round_trips_with_and_without_path(void **state)
{
	(void)state;
	check_round_trip("");
	check_round_trip("usr/lib/x");
}

static void test_partial_xattr__says_that_a_file_is_a_copy(void **state)
{
	(void)state;
	struct partial_xattr m = example("usr/lib/x"), got;
	struct buf b = { 0 };

	m.is_copy = true;
	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(b.data[1], 3);
	assert_int_equal(partial_xattr_decode(b.data, b.len, &got), 0);
	assert_true(got.is_copy);
	assert_string_equal(got.path, m.path);
	buf_release(&b);
}

static void test_partial_xattr__refuses_a_copy_without_a_path(void **state)
{
	(void)state;
	struct partial_xattr m = example(""), got;
	struct buf b = { 0 };
	uint64_t sum;

	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	b.data[1] = FORMAT_PARTIAL_IS_COPY;
	b.len = 40;
	sum = hash_checksum(b.data, b.len);
	assert_int_equal(buf_put_u64(&b, sum), 0);
	assert_int_equal(partial_xattr_decode(b.data, b.len, &got), -EUCLEAN);
	b.len = 0;
	m.is_copy = true;
	assert_int_equal(partial_xattr_encode(&m, &b), -EINVAL);
	buf_release(&b);
}

static void test_partial_xattr__refuses_each_cut_and_each_flipped_bit(void **state)
{
	(void)state;
	struct partial_xattr m = example("etc/passwd"), got;
	struct buf b = { 0 };

	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(partial_xattr_decode(b.data, len, &got), -EUCLEAN);
	for (size_t bit = 0; bit < b.len * 8; bit++) {
		b.data[bit / 8] ^= 1 << bit % 8;
		assert_int_equal(partial_xattr_decode(b.data, b.len, &got), -EUCLEAN);
		b.data[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_equal(buf_put_u8(&b, 0), 0);
	assert_int_equal(partial_xattr_decode(b.data, b.len, &got), -EUCLEAN);
	buf_release(&b);
}

/* A mark whose checksum is right and whose path is not. */
static int decode_with_path(const char *path, size_t len)
{
	struct partial_xattr m = example(""), got;
	struct buf b = { 0 };

	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	b.data[1] = len ? FORMAT_PARTIAL_HAS_PATH : 0;
	b.data[2] = (uint8_t)len;
	b.data[3] = (uint8_t)(len >> 8);
	b.len = 40;
	assert_int_equal(buf_put(&b, path, len), 0);

	uint64_t sum = hash_checksum(b.data, b.len);

	b.len = 40;
	assert_int_equal(buf_put_u64(&b, sum), 0);
	assert_int_equal(buf_put(&b, path, len), 0);

	int r = partial_xattr_decode(b.data, b.len, &got);

	buf_release(&b);
	return r;
}

static void test_partial_xattr__refuses_paths_that_could_leave_the_stack(void **state)
{
	(void)state;
	static char longest[PARTIAL_XATTR_PATH_MAX];

	assert_int_equal(decode_with_path("a/b", 3), 0);
	assert_int_equal(decode_with_path("../b", 4), -EUCLEAN);
	assert_int_equal(decode_with_path("/b", 2), -EUCLEAN);
	assert_int_equal(decode_with_path("a//b", 4), -EUCLEAN);
	assert_int_equal(decode_with_path("a/./b", 5), -EUCLEAN);
	assert_int_equal(decode_with_path("a/b/", 4), -EUCLEAN);
	assert_int_equal(decode_with_path("a\0b", 3), -EUCLEAN);
	memset(longest, 'x', sizeof(longest));
	assert_int_equal(decode_with_path(longest, sizeof(longest)), -EUCLEAN);
	assert_int_equal(decode_with_path(longest, 256), -EUCLEAN);
}

static void test_partial_xattr__refuses_to_write_nonsense(void **state)
{
	(void)state;
	struct buf b = { 0 };
	struct partial_xattr m = example("a/../b");

	assert_int_equal(partial_xattr_encode(&m, &b), -EINVAL);
	m = example("");
	m.file_id = 0;
	assert_int_equal(partial_xattr_encode(&m, &b), -EINVAL);
	m = example("");
	m.lower_size = UINT64_MAX;
	assert_int_equal(partial_xattr_encode(&m, &b), -EINVAL);
	m = example("");
	m.lower_mtime_ns = 1000000000;
	assert_int_equal(partial_xattr_encode(&m, &b), -EINVAL);
	assert_int_equal(b.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_partial_xattr__round_trips_with_and_without_path),
		cmocka_unit_test(test_partial_xattr__says_that_a_file_is_a_copy),
		cmocka_unit_test(test_partial_xattr__refuses_a_copy_without_a_path),
		cmocka_unit_test(test_partial_xattr__refuses_each_cut_and_each_flipped_bit),
		cmocka_unit_test(test_partial_xattr__refuses_paths_that_could_leave_the_stack),
		cmocka_unit_test(test_partial_xattr__refuses_to_write_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
