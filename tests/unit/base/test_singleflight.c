// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/singleflight.h"

#include "support/wait.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define THREADS 4
#define ROUNDS	2000

static char one, other;

static void test_singleflight__is_had_by_one_for_each_thing(void **state)
{
	struct singleflight a, b;

	(void)state;
	assert_true(singleflight_begin(&a, &one));
	assert_true(singleflight_begin(&b, &other));
	singleflight_end(&a);
	assert_true(singleflight_begin(&a, &one));
	singleflight_end(&b);
	singleflight_end(&a);
}

struct comer {
	_Atomic pid_t tid; /* 0: it has not come */
	_Atomic bool is_told;
	bool had_it;
};

static void *come(void *arg)
{
	struct comer *c = arg;
	struct singleflight t;

	c->tid = gettid();
	c->had_it = singleflight_begin(&t, &one);
	if (c->had_it)
		singleflight_end(&t);
	c->is_told = true;
	return NULL;
}

static void test_singleflight__who_comes_meanwhile_waits_for_its_end(void **state)
{
	struct comer comers[THREADS] = { 0 };
	pthread_t threads[THREADS];
	struct singleflight mine;

	(void)state;
	assert_true(singleflight_begin(&mine, &one));
	for (unsigned k = 0; k < THREADS; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, come, &comers[k]), 0);
	for (unsigned k = 0; k < THREADS; k++) {
		wait_until(comers[k].tid && wait_is_at_rest(comers[k].tid));
		assert_false(comers[k].is_told);
	}
	singleflight_end(&mine);
	for (unsigned k = 0; k < THREADS; k++)
		pthread_join(threads[k], NULL);
}

struct worker {
	_Atomic unsigned *at_it;
	unsigned collisions, turns;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned k = 0; k < ROUNDS; k++) {
		struct singleflight t;

		if (!singleflight_begin(&t, &one))
			continue;
		w->turns++;
		if (++*w->at_it != 1)
			w->collisions++;
		--*w->at_it;
		singleflight_end(&t);
	}
	return NULL;
}

static void test_singleflight__no_two_have_it_and_nobody_waits_for_ever(void **state)
{
	struct worker workers[THREADS] = { { 0 } };
	pthread_t threads[THREADS];
	_Atomic unsigned at_it = 0;
	unsigned turns = 0;

	(void)state;
	for (unsigned k = 0; k < THREADS; k++) {
		workers[k].at_it = &at_it;
		assert_int_equal(pthread_create(&threads[k], NULL, work, &workers[k]), 0);
	}
	for (unsigned k = 0; k < THREADS; k++) {
		pthread_join(threads[k], NULL);
		assert_int_equal(workers[k].collisions, 0);
		turns += workers[k].turns;
	}
	assert_true(turns > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_singleflight__is_had_by_one_for_each_thing),
		cmocka_unit_test(test_singleflight__who_comes_meanwhile_waits_for_its_end),
		cmocka_unit_test(test_singleflight__no_two_have_it_and_nobody_waits_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
