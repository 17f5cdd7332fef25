// SPDX-License-Identifier: Apache-2.0
#include "recover/supervisor_state.c"

#include "support/broken.h"

static void test_supervisor_state_invariants__each_rule_can_be_broken(void **state)
{
	struct supervisor_state *l = NULL;
	uint32_t at;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	assert_int_equal(supervisor_state_put(l, 0, &at), 0);
	EXPECT_BROKEN(supervisor_state_check_invariants(l, at),
		      "supervisor_state: a place in use is one of those that are looked at", l->end,
		      at);
	EXPECT_BROKEN(supervisor_state_check_invariants(l, at),
		      "supervisor_state: a place in use has a descriptor", l->places[at].fd, 0);
	EXPECT_BROKEN(supervisor_state_check_invariants(l, at),
		      "supervisor_state: a place in use has a descriptor", l->places[at].fd, -3);
	l->places[at].strikes = 1;
	EXPECT_BROKEN(supervisor_state_check_invariants(l, at),
		      "supervisor_state: a strike is of the past", l->places[at].struck_s,
		      clock_s() + 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_supervisor_state_invariants__each_rule_can_be_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
