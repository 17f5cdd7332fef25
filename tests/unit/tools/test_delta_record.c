// SPDX-License-Identifier: Apache-2.0
#include "tools/delta_record.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SUM  "\"sum\":\"0123456789abcdef\""
#define HEAD "\"veneer_delta\":1,\"id\":\"0000000000000001\",\"name\":\"one\"," SUM

static int parse(const char *text, struct delta_record *ret)
{
	return delta_record_parse(text, strlen(text), ret);
}

static int parse_head(const char *text)
{
	struct delta_head head;

	return delta_record_parse_head(text, strlen(text), &head);
}

static int parse_end(const char *text)
{
	struct delta_end end;

	return delta_record_parse_end(text, strlen(text), &end);
}

static void test_delta_record__head_comes_back(void **state)
{
	const struct delta_head h = { .id = 0xfedcba9876543210,
				      .from = 7,
				      .time_ns = -5,
				      .name = "name",
				      .first = 1ull << 40,
				      .sum = 1,
				      .names = 2 };
	char *text = delta_record_format_head(&h);
	struct delta_head back;

	(void)state;
	assert_non_null(text);
	assert_int_equal(delta_record_parse_head(text, strlen(text), &back), 0);
	free(text);
	assert_true(back.id == h.id && back.from == h.from && back.time_ns == h.time_ns);
	assert_true(back.first == h.first && back.sum == h.sum && back.names == 2);
	assert_string_equal(back.name, h.name);
}

static void test_delta_record__head_of_no_snapshot_has_no_name(void **state)
{
	char *text = delta_record_format_head(&(struct delta_head){ .time_ns = 3 });
	struct delta_head back;

	(void)state;
	assert_int_equal(delta_record_parse_head(text, strlen(text), &back), 0);
	free(text);
	assert_true(!back.id && !back.from && !back.first && !*back.name);
}

static void test_delta_record__heads_that_are_none(void **state)
{
	(void)state;
	assert_int_equal(parse_head("{" HEAD "}"), 0);
	assert_int_equal(parse_head("{" HEAD ",\"more\":[]}"), 0);
	assert_int_equal(parse_head("{\"veneer_delta\":2}"), -EPROTO);
	assert_int_equal(parse_head("{\"veneer_delta\":\"1\"}"), -EUCLEAN);
	assert_int_equal(parse_head("{" HEAD ",\"from\":\"0000000000000001\"}"), -EUCLEAN);
	assert_int_equal(parse_head("{" HEAD ",\"first\":-1}"), -EUCLEAN);
	assert_int_equal(parse_head("{" HEAD ",\"name\":\"two\"}"), -EUCLEAN);
	assert_int_equal(parse_head("{\"veneer_delta\":1,\"id\":\"0000000000000001\","
				    "\"name\":\"../one\"," SUM "}"),
			 -EUCLEAN);
	assert_int_equal(parse_head("{\"veneer_delta\":1,\"id\":\"0000000000000000\","
				    "\"name\":\"one\"," SUM "}"),
			 -EUCLEAN);
	assert_int_equal(parse_head(""), -EUCLEAN);
	assert_int_equal(parse_head("[]"), -EUCLEAN);
}

static void test_delta_record__record_comes_back(void **state)
{
	struct delta_range zeros[] = { { 0, 1 }, { 1, 5 }, { 1ull << 40, 4096 } };
	const struct delta_record r = { .sum = 0xffffffffffffffff,
					.has_base_sum = true,
					.base_sum = 0,
					.is_opaque = true,
					.has_links = true,
					.mtime_ns = 999999999,
					.is_partial = true,
					.base_size = 0,
					.at = 5,
					.end = INT64_MAX,
					.nzeros = 3,
					.zeros = zeros };
	char *text = delta_record_format(&r);
	struct delta_record back;

	(void)state;
	assert_non_null(text);
	assert_int_equal(parse(text, &back), 0);
	free(text);
	assert_true(back.sum == r.sum && back.has_base_sum && back.base_sum == 0);
	assert_true(back.is_opaque && back.has_links && !back.is_same && !back.is_socket);
	assert_true(back.is_partial && back.base_size == 0 && back.mtime_ns == r.mtime_ns);
	assert_true(back.at == 5 && back.end == INT64_MAX && back.nzeros == 3);
	assert_memory_equal(back.zeros, zeros, sizeof(zeros));
	delta_record_release(&back);
	assert_null(back.zeros);
}

static void test_delta_record__says_no_more_than_there_is(void **state)
{
	char *text = delta_record_format(&(struct delta_record){ .sum = 1, .is_same = true });

	(void)state;
	assert_string_equal(text, "{\"sum\":\"0000000000000001\",\"same\":true}");
	free(text);
}

static void test_delta_record__records_that_are_none(void **state)
{
	static const char *const bad[] = {
		"",
		"{}",
		"{" SUM "} x",
		"[" SUM "]",
		"{\"sum\":1}",
		"{\"sum\":\"0123456789ABCDEF\"}",
		"{\"sum\":\"0123456789abcde\"}",
		"{" SUM "," SUM "}",
		"{" SUM ",\"base_sum\":1}",
		"{" SUM ",\"base_size\":-1}",
		"{" SUM ",\"base_size\":1.5}",
		"{" SUM ",\"base_size\":9223372036854775808}",
		"{" SUM ",\"at\":2,\"end\":1}",
		"{" SUM ",\"mtime_ns\":1000000000}",
		"{" SUM ",\"zeros\":7}",
		"{" SUM ",\"zeros\":[[0]]}",
		"{" SUM ",\"zeros\":[[0,1,2]]}",
		"{" SUM ",\"zeros\":[[0,0]]}",
		"{" SUM ",\"zeros\":[[-1,1]]}",
		"{" SUM ",\"zeros\":[[5,5],[9,1]]}",
		"{" SUM ",\"zeros\":[[1,9223372036854775807]]}",
	};
	struct delta_record r;

	(void)state;
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		assert_int_equal(parse(bad[k], &r), -EUCLEAN);
	assert_int_equal(parse("{" SUM ",\"zeros\":[[5,4],[9,1]]}", &r), 0);
	delta_record_release(&r);
}

static void test_delta_record__text_is_bounded(void **state)
{
	const size_t len = DELTA_TEXT_MAX + 1;
	char *text = malloc(len);
	struct delta_record r;

	(void)state;
	memset(text, ' ', len);
	memcpy(text, "{" SUM "}", strlen("{" SUM "}"));
	assert_int_equal(delta_record_parse(text, len - 1, &r), 0);
	assert_int_equal(delta_record_parse(text, len, &r), -EUCLEAN);
	free(text);
}

static void test_delta_record__zeros_are_bounded(void **state)
{
	struct delta_record r = { .sum = 1, .is_partial = true }, back;
	struct delta_range *zeros = calloc(DELTA_ZEROS_MAX + 1, sizeof(*zeros));

	(void)state;
	for (size_t k = 0; k <= DELTA_ZEROS_MAX; k++)
		zeros[k] = (struct delta_range){ 2 * k, 1 };
	r.zeros = zeros;
	for (r.nzeros = DELTA_ZEROS_MAX; r.nzeros <= DELTA_ZEROS_MAX + 1; r.nzeros++) {
		char *text = delta_record_format(&r);

		assert_int_equal(parse(text, &back), r.nzeros > DELTA_ZEROS_MAX ? -EUCLEAN : 0);
		free(text);
		if (r.nzeros <= DELTA_ZEROS_MAX)
			delta_record_release(&back);
	}
	free(zeros);
}

static void test_delta_record__end_comes_back(void **state)
{
	const struct delta_end e = { .entries = 5, .sum = 6, .has_base_sum = true, .base_sum = 7 };
	char *text = delta_record_format_end(&e);
	struct delta_end back;

	(void)state;
	assert_int_equal(delta_record_parse_end(text, strlen(text), &back), 0);
	free(text);
	assert_true(back.entries == 5 && back.sum == 6 && back.has_base_sum && back.base_sum == 7);
	assert_int_equal(parse_end("{\"entries\":1," SUM "}"), 0);
	assert_int_equal(parse_end("{\"entries\":-1," SUM "}"), -EUCLEAN);
	assert_int_equal(parse_end("{\"entries\":\"1\"," SUM "}"), -EUCLEAN);
	assert_int_equal(parse_end("{" SUM "}"), -EUCLEAN);
	assert_int_equal(parse_end("{\"entries\":1}"), -EUCLEAN);
}

static void test_delta_record__next_names_is_of_name_and_part(void **state)
{
	const uint64_t names = delta_record_next_names(1, "a", 2, 3);

	(void)state;
	assert_true(names == delta_record_next_names(1, "a", 2, 3));
	assert_true(names != delta_record_next_names(0, "a", 2, 3));
	assert_true(names != delta_record_next_names(1, "b", 2, 3));
	assert_true(names != delta_record_next_names(1, "a", 1, 3));
	assert_true(names != delta_record_next_names(1, "a", 2, 4));
}

/* The sums of a stream depend on these numbers. */
static void test_delta_record__next_sum_is_of_all_four(void **state)
{
	const uint64_t sum = delta_record_next_sum(1, 2, 3, 4);

	(void)state;
	assert_true(sum == UINT64_C(0x73f859a04f669e6d));
	assert_true(sum != delta_record_next_sum(2, 2, 3, 4));
	assert_true(sum != delta_record_next_sum(1, 3, 3, 4));
	assert_true(sum != delta_record_next_sum(1, 2, 4, 4));
	assert_true(sum != delta_record_next_sum(1, 2, 3, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delta_record__head_comes_back),
		cmocka_unit_test(test_delta_record__head_of_no_snapshot_has_no_name),
		cmocka_unit_test(test_delta_record__heads_that_are_none),
		cmocka_unit_test(test_delta_record__record_comes_back),
		cmocka_unit_test(test_delta_record__says_no_more_than_there_is),
		cmocka_unit_test(test_delta_record__records_that_are_none),
		cmocka_unit_test(test_delta_record__text_is_bounded),
		cmocka_unit_test(test_delta_record__zeros_are_bounded),
		cmocka_unit_test(test_delta_record__end_comes_back),
		cmocka_unit_test(test_delta_record__next_names_is_of_name_and_part),
		cmocka_unit_test(test_delta_record__next_sum_is_of_all_four),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
