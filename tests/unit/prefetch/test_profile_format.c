// SPDX-License-Identifier: Apache-2.0
#include "prefetch/profile_format.h"

#include "veneer/base/hash.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char path_a[] = "a/b", path_b[] = "../b", path_c[] = "c", label[] = "/a/layer";
static uint64_t layers[] = { 11, 22 };
static struct profile_file files[] = { { path_a, 11 }, { path_b, 11 }, { path_c, 22 } };
static struct profile_item items[] = {
	{ 0, 5, PROFILE_READ, 1000, { 0xa5, 4, 7, 3 } },
	{ 1, 0, PROFILE_READ, 1000, { 1, 1, 0, 0 } },
	{ 2, 0, PROFILE_WRITTEN, -9, { 1ull << 63, UINT32_MAX, 8, 9 } },
};
static const struct profile_image image = {
	.files = files,
	.nfiles = 3,
	.items = items,
	.nitems = 3,
	.starts = 70,
	.score = { 5, 0.75 },
	.last_seen = 1234567890123,
	.label = label,
	.key = 0xfedcba9876543210,
	.layers = layers,
	.nlayers = 2,
};

static struct buf bytes;

static int encode(void **state)
{
	(void)state;
	buf_release(&bytes);
	bytes = (struct buf){ 0 };
	return profile_format_encode(&image, &bytes);
}

/* The sums are made right. */
static int decode(const struct profile_stack *borrower, struct profile_image *ret)
{
	struct profile_format f;
	int r = profile_format_start(bytes.data, &f);

	*ret = (struct profile_image){ 0 };
	assert_int_equal(r, 0);
	f.head_sum = hash_checksum(bytes.data + PROFILE_FORMAT_START, f.head);
	f.body_sum = hash_checksum(bytes.data + PROFILE_FORMAT_START + f.head, f.body);
	r = profile_format_head(&f, bytes.data + PROFILE_FORMAT_START, ret);
	return r
		       ?: profile_format_body(&f, bytes.data + PROFILE_FORMAT_START + f.head,
					      borrower, ret);
}

/* Not by memory: a history ends with bytes of no field. */
static void expect_history(const struct profile_item *got, const struct profile_item *want)
{
	assert_int_equal(got->history.seen, want->history.seen);
	assert_int_equal(got->history.count, want->history.count);
	assert_int_equal(got->history.first_ms, want->history.first_ms);
	assert_int_equal(got->history.order, want->history.order);
}

static void test_profile_format__gives_back_what_it_was_given(void **state)
{
	struct profile_image got;

	(void)state;
	assert_int_equal(decode(NULL, &got), 0);
	assert_true(got.key == image.key && got.starts == 70 && got.last_seen == image.last_seen);
	assert_true(got.score.judged == 5 && got.score.precision == 0.75);
	assert_string_equal(got.label, label);
	assert_int_equal(got.nlayers, 2);
	assert_memory_equal(got.layers, layers, sizeof(layers));
	/* Without the path that leads elsewhere. */
	assert_int_equal(got.nfiles, 2);
	assert_int_equal(got.nitems, 2);
	assert_string_equal(got.files[got.items[0].file].path, "a/b");
	assert_string_equal(got.files[got.items[1].file].path, "c");
	assert_int_equal(got.files[1].layer, 22);
	expect_history(&got.items[0], &items[0]);
	expect_history(&got.items[1], &items[2]);
	assert_int_equal(got.items[1].kind, PROFILE_WRITTEN);
	assert_int_equal(got.items[1].last_seen, -9);
	assert_int_equal(got.items[0].extent, 5);
	profile_image_release(&got);
}

static void test_profile_format__lends_files_of_the_borrower_only(void **state)
{
	const struct profile_stack borrower = { .layers = layers + 1, .n = 1 };
	struct profile_image got;

	(void)state;
	assert_int_equal(decode(&borrower, &got), 0);
	assert_int_equal(got.nfiles, 1);
	assert_int_equal(got.nitems, 1);
	assert_string_equal(got.files[0].path, "c");
	profile_image_release(&got);
}

static void test_profile_format__sums_cover_head_and_body(void **state)
{
	struct profile_image got = { 0 };
	struct profile_format f;
	const uint8_t *head = bytes.data + PROFILE_FORMAT_START;

	(void)state;
	assert_int_equal(profile_format_start(bytes.data, &f), 0);
	assert_int_equal(PROFILE_FORMAT_START + f.head + f.body, bytes.len);
	assert_int_equal(profile_format_head(&f, head, &got), 0);
	bytes.data[bytes.len - 1] ^= 1;
	assert_int_equal(profile_format_body(&f, head + f.head, NULL, &got), -EUCLEAN);
	profile_image_release(&got);
	bytes.data[PROFILE_FORMAT_START] ^= 1;
	assert_int_equal(profile_format_head(&f, head, &got), -EUCLEAN);
	profile_image_release(&got);
}

/* With sums that are right: each word of the file is the largest once. */
static void test_profile_format__no_number_leads_beyond_the_bytes(void **state)
{
	size_t refused = 0;

	for (size_t at = 16; at + 4 <= bytes.len; at++) {
		struct profile_image got;

		assert_int_equal(encode(state), 0);
		memset(bytes.data + at, 0xff, 4);
		refused += decode(NULL, &got) == -EUCLEAN;
		for (size_t i = 0; i < got.nitems; i++)
			assert_true(got.items[i].file < got.nfiles &&
				    got.items[i].kind < PROFILE_KINDS);
		profile_image_release(&got);
	}
	assert_true(refused > 0);
}

static void test_profile_format__a_newer_version_is_no_damage(void **state)
{
	struct profile_format f;

	(void)state;
	bytes.data[4] = 2;
	assert_int_equal(profile_format_start(bytes.data, &f), -EPROTO);
	bytes.data[4] = 0;
	assert_int_equal(profile_format_start(bytes.data, &f), -EUCLEAN);
	bytes.data[4] = 1;
	bytes.data[15] = 1;
	assert_int_equal(profile_format_start(bytes.data, &f), -EUCLEAN);
}

static int finish(void **state)
{
	(void)state;
	buf_release(&bytes);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(test_profile_format__##name, encode)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(gives_back_what_it_was_given), TEST(lends_files_of_the_borrower_only),
		TEST(sums_cover_head_and_body),	    TEST(no_number_leads_beyond_the_bytes),
		TEST(a_newer_version_is_no_damage),
	};

	return cmocka_run_group_tests(tests, NULL, finish);
}
