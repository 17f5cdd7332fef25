// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/branch_receive.h"
#include "veneer/tools/delta.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>

#define ZERO "0000000000000000"
#define ONE  "0000000000000001"

static int parse(const char *token)
{
	struct delta_head head;

	return delta_token_parse(token, &head);
}

static void test_delta_token__comes_back(void **state)
{
	const struct delta_head head = { .id = 0xfedcba9876543210,
					 .from = 5,
					 .first = 1ull << 50,
					 .sum = 0xffffffffffffffff,
					 .names = 7 };
	char token[BRANCH_RECEIVE_TOKEN_MAX];
	struct delta_head back;

	(void)state;
	delta_token_format(&head, token, sizeof(token));
	assert_int_equal(delta_token_parse(token, &back), 0);
	assert_true(back.id == head.id && back.from == head.from);
	assert_true(back.first == 1ull << 50 && back.sum == 0xffffffffffffffff && back.names == 7);
}

static void test_delta_token__what_is_none_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"nonsense",
		ONE "-" ONE "-" ONE "-" ONE,
		ONE "-" ONE "-" ONE "-" ONE "-" ONE "-" ONE,
		ONE "-" ONE "-" ONE "-" ONE "-" ONE "\n",
		" " ONE "-" ONE "-" ONE "-" ONE "-" ONE,
		ONE "-" ONE "-" ONE "-" ONE "-1",
		ONE "-" ONE "-" ONE "-" ONE "-0x00000000000001",
		ONE "-" ONE "-" ONE "-" ONE "-000000000000000A",
		ONE "-" ONE "-" ONE "-" ONE "-+00000000000001",
		ONE "--" ONE "-" ONE "-" ONE "-" ONE "-" ONE,
		ZERO "-" ZERO "-" ONE "-" ONE "-" ONE,
	};

	(void)state;
	assert_int_equal(parse(ONE "-" ZERO "-" ZERO "-" ZERO "-" ZERO), 0);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		assert_int_equal(parse(bad[k]), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delta_token__comes_back),
		cmocka_unit_test(test_delta_token__what_is_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
