// SPDX-License-Identifier: Apache-2.0
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "veneer/base/hash.h"
#include "veneer/map/record.h"

#define PREV 0x1122334455667788ull

static const struct record examples[] = {
	{ .type = FORMAT_REC_OPEN, .open = { 11, 22 } },
	{ .type = FORMAT_REC_NEW, .id = 1, .fresh = { FORMAT_SIZE_MAX } },
	{ .type = FORMAT_REC_OWN_RUN, .id = 2, .run = { FORMAT_BLK_END - 1, 1 } },
	{ .type = FORMAT_REC_OWN_BITS, .id = 3, .bits = { 5, { 1, 1ull << 63 } } },
	{ .type = FORMAT_REC_TRUNCATE, .id = 4, .truncate = { 4097 } },
	{ .type = FORMAT_REC_GONE, .id = FORMAT_ID_END - 1 },
	{ .type = FORMAT_REC_COMMIT, .id = 6 },
	{ .type = FORMAT_REC_CLEAN },
	{ .type = FORMAT_REC_ZERO_RUN, .id = 7, .run = { 3, FORMAT_BLK_END - 3 } },
	{ .type = FORMAT_REC_ZERO_BITS, .id = 8, .bits = { 5, { 0, 2 } } },
};
#define NEXAMPLES (sizeof(examples) / sizeof(examples[0]))

static int decode(const uint8_t *p, size_t len, uint64_t prev)
{
	struct record rec;
	uint64_t sum;
	const char *why = NULL;
	int r = record_decode(p, len, prev, &rec, &sum, &why);

	if (r <= 0)
		assert_non_null(why);
	return r;
}

static void test_record__each_type_round_trips(void **state)
{
	(void)state;
	for (size_t i = 0; i < NEXAMPLES; i++) {
		uint8_t bytes[FORMAT_REC_BYTES_MAX];
		struct record got;
		uint64_t sum, got_sum;
		const char *why;
		size_t len = record_encode(&examples[i], PREV, bytes, &sum);

		assert_int_equal(len, record_len(examples[i].type));
		assert_int_equal(record_decode(bytes, len, PREV, &got, &got_sum, &why), len);
		assert_int_equal(sum, got_sum);
		assert_memory_equal(&got, &examples[i], sizeof(got));
		assert_string_not_equal(record_name(got.type), "?");
	}
}

static void test_record__each_cut_and_each_flipped_bit_is_no_record(void **state)
{
	(void)state;
	for (size_t i = 0; i < NEXAMPLES; i++) {
		uint8_t bytes[FORMAT_REC_BYTES_MAX];
		uint64_t sum;
		size_t len = record_encode(&examples[i], PREV, bytes, &sum);

		for (size_t cut = 0; cut < len; cut++)
			assert_int_equal(decode(bytes, cut, PREV), 0);
		for (size_t bit = 0; bit < len * 8; bit++) {
			bytes[bit / 8] ^= 1 << bit % 8;
			assert_int_equal(decode(bytes, len, PREV), 0);
			bytes[bit / 8] ^= 1 << bit % 8;
		}
	}
}

static void test_record__is_valid_only_behind_its_predecessor(void **state)
{
	(void)state;
	uint8_t bytes[FORMAT_REC_BYTES_MAX], zeros[FORMAT_REC_BYTES_MAX] = { 0 };
	uint64_t sum;
	size_t len = record_encode(&examples[2], PREV, bytes, &sum);

	assert_int_equal(decode(bytes, len, PREV), len);
	assert_int_equal(decode(bytes, len, PREV + 1), 0);
	assert_int_equal(decode(bytes, len, 0), 0);
	assert_int_equal(decode(zeros, sizeof(zeros), PREV), 0);
}

/* Zeros end a log. A head of type 0 that has more in it is no end. */
static void test_record__end_of_the_log_is_zeros_in_the_whole_head(void **state)
{
	static const struct format_record_head heads[] = { { .words = 1 },
							   { .reserved0 = 1 },
							   { .reserved1 = 1 } };
	uint8_t bytes[FORMAT_REC_BYTES_MAX] = { 0 };
	struct record rec;
	const char *why;
	uint64_t sum;

	(void)state;
	assert_int_equal(record_decode(bytes, sizeof(bytes), PREV, &rec, &sum, &why), 0);
	assert_string_equal(why, "zeros");
	for (size_t k = 0; k < sizeof(heads) / sizeof(*heads); k++) {
		memcpy(bytes, &heads[k], sizeof(heads[k]));
		assert_int_equal(record_decode(bytes, sizeof(bytes), PREV, &rec, &sum, &why), 0);
		assert_string_equal(why, "no record");
	}
}

/* A checksum that fits the bytes, whatever they say. */
static void put_sum(uint8_t *bytes, size_t len)
{
	uint8_t summed[8 + FORMAT_REC_BYTES_MAX];
	uint64_t le = htole64(PREV);

	memcpy(summed, &le, sizeof(le));
	memcpy(summed + 8, bytes, len - 8);
	le = htole64(hash_checksum(summed, len));
	memcpy(bytes + len - 8, &le, sizeof(le));
}

#define WRONG "length or reserved bytes wrong for the type"

/* As a later version may write it. */
static void test_record__whole_record_with_a_head_of_no_type_is_damage(void **state)
{
	static const struct {
		struct format_record_head head;
		const char *why;
	} rows[] = {
		{ { .type = FORMAT_REC_ZERO_BITS + 1, .words = 5 }, "unknown record type" },
		{ { .type = 255, .words = 5 }, "unknown record type" },
		{ { .type = FORMAT_REC_OWN_RUN, .words = 6 }, WRONG },
		{ { .type = FORMAT_REC_OWN_RUN, .words = 5, .reserved0 = 1 }, WRONG },
		{ { .type = FORMAT_REC_OWN_RUN, .words = 5, .reserved1 = 1 }, WRONG },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		uint8_t bytes[FORMAT_REC_BYTES_MAX] = { 0 };
		struct record rec;
		const char *why;
		uint64_t sum;

		record_encode(&examples[2], PREV, bytes, &sum);
		memcpy(bytes, &rows[k].head, sizeof(rows[k].head));
		put_sum(bytes, rows[k].head.words * 8u);
		assert_int_equal(record_decode(bytes, sizeof(bytes), PREV, &rec, &sum, &why),
				 -EUCLEAN);
		assert_string_equal(why, rows[k].why);
	}
}

static void check_refused(struct record rec)
{
	uint8_t bytes[FORMAT_REC_BYTES_MAX];
	uint64_t sum;
	size_t len = record_encode(&rec, PREV, bytes, &sum);

	assert_int_equal(decode(bytes, len, PREV), -EUCLEAN);
}

static void test_record__whole_record_that_breaks_a_rule_is_damage(void **state)
{
	(void)state;
	check_refused((struct record){ .type = FORMAT_REC_NEW, .id = 0, .fresh = { 1 } });
	check_refused((struct record){ .type = FORMAT_REC_NEW, .id = FORMAT_ID_END });
	check_refused((struct record){
		.type = FORMAT_REC_NEW, .id = 1, .fresh = { FORMAT_SIZE_MAX + 1 } });
	check_refused((struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { 5, 0 } });
	check_refused((struct record){
		.type = FORMAT_REC_OWN_RUN, .id = 1, .run = { FORMAT_BLK_END, 1 } });
	check_refused(
		(struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { UINT64_MAX, 2 } });
	check_refused(
		(struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { 2, UINT64_MAX } });
	check_refused((struct record){
		.type = FORMAT_REC_OWN_BITS, .id = 1, .bits = { 1ull << 44, { 1, 0 } } });
	check_refused(
		(struct record){ .type = FORMAT_REC_OWN_BITS, .id = 1, .bits = { 0, { 0, 0 } } });
	check_refused((struct record){
		.type = FORMAT_REC_TRUNCATE, .id = 1, .truncate = { UINT64_MAX } });
	check_refused((struct record){ .type = FORMAT_REC_GONE, .id = 0 });
	check_refused((struct record){ .type = FORMAT_REC_COMMIT, .id = 0 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_record__each_type_round_trips),
		cmocka_unit_test(test_record__each_cut_and_each_flipped_bit_is_no_record),
		cmocka_unit_test(test_record__is_valid_only_behind_its_predecessor),
		cmocka_unit_test(test_record__end_of_the_log_is_zeros_in_the_whole_head),
		cmocka_unit_test(test_record__whole_record_with_a_head_of_no_type_is_damage),
		cmocka_unit_test(test_record__whole_record_that_breaks_a_rule_is_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
