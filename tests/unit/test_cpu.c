// SPDX-License-Identifier: Apache-2.0
#include "veneer/cpu.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

static cpu_set_t allowed(void)
{
	cpu_set_t now;

	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	return now;
}

static int first_of(const cpu_set_t *set)
{
	int cpu = 0;

	while (!CPU_ISSET((size_t)cpu, set))
		cpu++;
	return cpu;
}

static void test_cpu__a_thread_stays_and_is_let_go(void **state)
{
	struct cpu_stay stay = { .cpu = -1 };
	cpu_set_t before = allowed(), now;

	(void)state;
	assert_int_equal(cpu_stay_on(&stay, first_of(&before)), 0);
	now = allowed();
	assert_int_equal(CPU_COUNT(&now), 1);
	assert_int_equal(sched_getcpu(), first_of(&before));
	assert_int_equal(cpu_of_thread((uint32_t)gettid()), first_of(&before));
	cpu_stay_nowhere(&stay);
	now = allowed();
	assert_true(CPU_EQUAL(&now, &before));
}

static void test_cpu__moving_on_keeps_what_was_allowed_first(void **state)
{
	struct cpu_stay stay = { .cpu = -1 };
	cpu_set_t before = allowed(), now;

	(void)state;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &before))
			assert_int_equal(cpu_stay_on(&stay, cpu), 0);
	cpu_stay_nowhere(&stay);
	now = allowed();
	assert_true(CPU_EQUAL(&now, &before));
}

static void test_cpu__where_a_thread_is_not_allowed_it_does_not_go(void **state)
{
	struct cpu_stay stay = { .cpu = -1 }, other = { .cpu = -1 };
	cpu_set_t before = allowed(), now;

	(void)state;
	assert_int_equal(cpu_stay_on(&stay, first_of(&before)), 0);
	assert_int_equal(cpu_stay_on(&other, first_of(&before) + 1), -EPERM);
	assert_int_equal(cpu_stay_on(&other, -1), -EPERM);
	assert_int_equal(cpu_stay_on(&other, CPU_SETSIZE), -EPERM);
	assert_int_equal(other.cpu, -1);
	cpu_stay_nowhere(&stay);
	now = allowed();
	assert_true(CPU_EQUAL(&now, &before));
}

static void test_cpu__what_an_administrator_said_meanwhile_counts(void **state)
{
	struct cpu_stay stay = { .cpu = -1 };
	cpu_set_t before = allowed(), theirs = before, now;

	(void)state;
	if (CPU_COUNT(&before) < 2)
		skip();
	CPU_CLR((size_t)first_of(&before), &theirs);
	assert_int_equal(cpu_stay_on(&stay, first_of(&before)), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(theirs), &theirs), 0);
	cpu_stay_nowhere(&stay);
	now = allowed();
	assert_true(CPU_EQUAL(&now, &theirs));
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void test_cpu__a_name_with_anything_in_it_is_skipped(void **state)
{
	struct cpu_stay stay = { .cpu = -1 };
	cpu_set_t before = allowed();

	(void)state;
	assert_int_equal(cpu_stay_on(&stay, first_of(&before)), 0);
	assert_int_equal(prctl(PR_SET_NAME, "a) R 1 2 (b"), 0);
	assert_int_equal(cpu_of_thread((uint32_t)gettid()), first_of(&before));
	cpu_stay_nowhere(&stay);
}

static void *look(void *arg)
{
	*(int *)arg = cpu_of_thread((uint32_t)gettid());
	return NULL;
}

static void test_cpu__other_threads_are_found_and_none_is_an_error(void **state)
{
	pthread_t thread;
	int cpu = -1;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, look, &cpu), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(cpu >= 0);
	assert_int_equal(cpu_of_thread(0), -ENOENT);
	assert_int_equal(cpu_of_thread(UINT32_MAX), -ENOENT);
}

struct other {
	pthread_barrier_t turn;
	pid_t tid;
	int cpu;
	cpu_set_t allowed;
};

static void *be_freed(void *arg)
{
	struct cpu_stay stay = { .cpu = -1 };
	struct other *o = arg;

	o->tid = gettid();
	if (cpu_stay_on(&stay, o->cpu) < 0)
		return NULL;
	pthread_barrier_wait(&o->turn);
	pthread_barrier_wait(&o->turn);
	/* Not to be mistaken for what somebody else has said. */
	cpu_stay_nowhere(&stay);
	o->allowed = allowed();
	return NULL;
}

static void test_cpu__another_thread_is_freed_where_it_was_told_to_stay(void **state)
{
	cpu_set_t before = allowed(), now;
	struct other o = { .cpu = first_of(&before) };
	pthread_t thread;

	(void)state;
	if (CPU_COUNT(&before) < 2)
		skip();
	pthread_barrier_init(&o.turn, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, be_freed, &o), 0);
	pthread_barrier_wait(&o.turn);
	cpu_free_thread(o.tid, o.cpu + 1);
	assert_int_equal(sched_getaffinity(o.tid, sizeof(now), &now), 0);
	assert_int_equal(CPU_COUNT(&now), 1);
	cpu_free_thread(o.tid, o.cpu);
	assert_int_equal(sched_getaffinity(o.tid, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(&now, &before));
	pthread_barrier_wait(&o.turn);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(CPU_EQUAL(&o.allowed, &before));
	pthread_barrier_destroy(&o.turn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu__a_thread_stays_and_is_let_go),
		cmocka_unit_test(test_cpu__moving_on_keeps_what_was_allowed_first),
		cmocka_unit_test(test_cpu__where_a_thread_is_not_allowed_it_does_not_go),
		cmocka_unit_test(test_cpu__what_an_administrator_said_meanwhile_counts),
		cmocka_unit_test(test_cpu__a_name_with_anything_in_it_is_skipped),
		cmocka_unit_test(test_cpu__other_threads_are_found_and_none_is_an_error),
		cmocka_unit_test(test_cpu__another_thread_is_freed_where_it_was_told_to_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
