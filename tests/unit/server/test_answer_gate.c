// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/answer_gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define LONG_MS 60000

static atomic_int entered;

static void *enter(void *arg)
{
	(void)arg;
	answer_gate_enter();
	atomic_fetch_add(&entered, 1);
	answer_gate_leave();
	return NULL;
}

static void test_answer_gate__stays_open_while_somebody_is_inside(void **state)
{
	(void)state;
	answer_gate_enter();
	assert_int_equal(answer_gate_close(1), -EBUSY);
	/* So another one is not kept out. */
	enter(NULL);
	assert_int_equal(atomic_load(&entered), 1);
	answer_gate_leave();
	assert_int_equal(answer_gate_close(LONG_MS), 0);
	assert_int_equal(answer_gate_close(LONG_MS), -EBUSY);
	answer_gate_open();
}

static void test_answer_gate__nobody_enters_while_it_is_closed(void **state)
{
	pthread_t thread;

	(void)state;
	atomic_store(&entered, 0);
	assert_int_equal(answer_gate_close(LONG_MS), 0);
	assert_int_equal(pthread_create(&thread, NULL, enter, NULL), 0);
	assert_int_equal(atomic_load(&entered), 0);
	answer_gate_open();
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&entered), 1);
}

static void *close_it(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)answer_gate_close(LONG_MS);
}

static void test_answer_gate__closes_when_all_have_left(void **state)
{
	pthread_t thread;
	void *result;

	(void)state;
	answer_gate_enter();
	assert_int_equal(pthread_create(&thread, NULL, close_it, NULL), 0);
	answer_gate_leave();
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	answer_gate_open();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer_gate__stays_open_while_somebody_is_inside),
		cmocka_unit_test(test_answer_gate__nobody_enters_while_it_is_closed),
		cmocka_unit_test(test_answer_gate__closes_when_all_have_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
