// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/worker.h"

#include "veneer/base/clock.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct seen {
	int64_t until_ms;
	sem_t begun, round;
	unsigned rounds;
};

static void work(struct worker *me, void *arg)
{
	struct seen *s = arg;

	sem_post(&s->begun);
	while (worker_wait(me, s->until_ms)) {
		s->until_ms = WORKER_NO_LIMIT;
		s->rounds++;
		sem_post(&s->round);
	}
}

static void await(sem_t *s)
{
	while (sem_wait(s) < 0)
		assert_int_equal(errno, EINTR);
}

static struct worker *start(struct seen *s, int64_t until_ms)
{
	struct worker *w;

	*s = (struct seen){ .until_ms = until_ms };
	sem_init(&s->begun, 0, 0);
	sem_init(&s->round, 0, 0);
	assert_int_equal(worker_start(work, s, &w), 0);
	return w;
}

static void test_worker__stop_ends_a_sleep_without_limit(void **state)
{
	struct seen s;
	struct worker *w = start(&s, WORKER_NO_LIMIT);

	(void)state;
	await(&s.begun);
	worker_stop(w);
	assert_int_equal(s.rounds, 0);
}

static void test_worker__wake_before_the_sleep_is_not_lost(void **state)
{
	struct seen s;
	struct worker *w = start(&s, WORKER_NO_LIMIT);

	(void)state;
	worker_wake(w);
	await(&s.round);
	worker_wake(w);
	await(&s.round);
	worker_stop(w);
	assert_int_equal(s.rounds, 2);
}

static void test_worker__sleeps_until_its_time(void **state)
{
	const int64_t until = clock_ms() + 30;
	struct seen s;
	struct worker *w = start(&s, until);

	(void)state;
	await(&s.round);
	assert_true(clock_ms() >= until);
	worker_stop(w);
	assert_int_equal(s.rounds, 1);
}

static void test_worker__time_in_the_past_is_no_sleep(void **state)
{
	struct seen s;
	struct worker *w = start(&s, 0);

	(void)state;
	await(&s.round);
	worker_stop(w);
	assert_int_equal(s.rounds, 1);
}

static void test_worker__none_is_neither_woken_nor_stopped(void **state)
{
	(void)state;
	worker_wake(NULL);
	worker_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worker__stop_ends_a_sleep_without_limit),
		cmocka_unit_test(test_worker__wake_before_the_sleep_is_not_lost),
		cmocka_unit_test(test_worker__sleeps_until_its_time),
		cmocka_unit_test(test_worker__time_in_the_past_is_no_sleep),
		cmocka_unit_test(test_worker__none_is_neither_woken_nor_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
