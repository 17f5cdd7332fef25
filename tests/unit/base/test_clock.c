// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

struct sleeper {
	pthread_mutex_t lock;
	pthread_cond_t woken;
	bool is_asleep, is_told;
};

static void test_clock__wait_ends_when_its_time_has_come_and_not_before(void **state)
{
	struct sleeper s = { .lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER };
	const int64_t until = clock_ms() + 1030; /* not whole seconds */
	int r = 0;

	(void)state;
	pthread_mutex_lock(&s.lock);
	while (r == 0)
		r = clock_wait(&s.woken, &s.lock, until);
	pthread_mutex_unlock(&s.lock);
	assert_int_equal(r, ETIMEDOUT);
	assert_true(clock_ms() >= until);
	/* A deadline that is over needs no wait. */
	pthread_mutex_lock(&s.lock);
	assert_int_equal(clock_wait(&s.woken, &s.lock, until), ETIMEDOUT);
	pthread_mutex_unlock(&s.lock);
}

static void *wake(void *arg)
{
	struct sleeper *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->is_asleep) {
		pthread_mutex_unlock(&s->lock);
		pthread_mutex_lock(&s->lock);
	}
	s->is_told = true;
	pthread_cond_signal(&s->woken);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void test_clock__wait_ends_when_it_is_told(void **state)
{
	struct sleeper s = { .lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER };
	const int64_t until = clock_ms() + 3600 * 1000;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, wake, &s), 0);
	pthread_mutex_lock(&s.lock);
	s.is_asleep = true;
	while (!s.is_told)
		assert_int_equal(clock_wait(&s.woken, &s.lock, until), 0);
	pthread_mutex_unlock(&s.lock);
	pthread_join(thread, NULL);
}

static void test_clock__units_tell_the_same_time(void **state)
{
	const int64_t s = clock_s(), ms = clock_ms(), ns = clock_ns();

	(void)state;
	assert_in_range(ms, s * 1000, s * 1000 + 1999);
	assert_in_range(ns, ms * 1000000, ms * 1000000 + 1000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clock__units_tell_the_same_time),
		cmocka_unit_test(test_clock__wait_ends_when_its_time_has_come_and_not_before),
		cmocka_unit_test(test_clock__wait_ends_when_it_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
