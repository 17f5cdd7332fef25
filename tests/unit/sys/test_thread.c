// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/thread.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

struct seen {
	size_t stack;
	bool is_detached, blocks_term;
	sem_t done;
};

static void *look(void *arg)
{
	struct seen *s = arg;
	pthread_attr_t attr;
	sigset_t mask;
	int state;

	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getdetachstate(&attr, &state);
	pthread_attr_getstacksize(&attr, &s->stack);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	s->is_detached = state == PTHREAD_CREATE_DETACHED;
	s->blocks_term = sigismember(&mask, SIGTERM) == 1;
	sem_post(&s->done);
	return NULL;
}

static struct seen started(int (*start)(void *(*run)(void *arg), void *arg, size_t stack),
			   size_t stack)
{
	static struct seen s;

	sem_init(&s.done, 0, 0);
	assert_int_equal(start(look, &s, stack), 0);
	while (sem_wait(&s.done) < 0)
		assert_int_equal(errno, EINTR);
	return s;
}

static void test_thread__is_detached_and_has_its_stack(void **state)
{
	struct seen s = started(thread_start, 1u << 20);

	(void)state;
	assert_true(s.is_detached);
	assert_in_range(s.stack, 1u << 20, (1u << 20) + (1u << 16));
}

static void test_thread__blocks_signals_and_its_starter_does_not(void **state)
{
	sigset_t mask;

	(void)state;
	assert_true(started(thread_start_without_signals, 0).blocks_term);
	assert_false(started(thread_start, 0).blocks_term);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_int_equal(sigismember(&mask, SIGTERM), 0);
}

static void test_thread__one_that_cannot_be_had_is_an_error(void **state)
{
	(void)state;
	assert_int_not_equal(thread_start_without_signals(look, NULL, SIZE_MAX / 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread__is_detached_and_has_its_stack),
		cmocka_unit_test(test_thread__blocks_signals_and_its_starter_does_not),
		cmocka_unit_test(test_thread__one_that_cannot_be_had_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
