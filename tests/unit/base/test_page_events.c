// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/page_events.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define WRITERS 4u
#define NOTES	200000u

static uint32_t next_of[WRITERS + 1];
static uint64_t taken;

static void take(void *arg, const struct page_dups_sent *s)
{
	(void)arg;
	/* none twice, none out of order; some may be lost */
	assert_true(s->key.index >= next_of[s->mount]);
	assert_int_equal(s->node, s->key.index ^ s->mount);
	next_of[s->mount] = s->key.index + 1;
	taken++;
}

static void note(uint32_t mount, uint32_t k)
{
	page_events_note(
		&(struct page_dups_sent){ .key = { 1, 2, k }, .mount = mount, .node = k ^ mount });
}

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i <= WRITERS; i++)
		next_of[i] = 0;
	page_events_drain(take, NULL);
	for (unsigned i = 0; i <= WRITERS; i++)
		next_of[i] = 0;
	taken = 0;
	return 0;
}

static void test_page_events__what_does_not_fit_is_lost_and_counted(void **state)
{
	const uint64_t lost = page_events_lost();

	(void)state;
	for (uint32_t k = 0; k < 10000; k++)
		note(1, k);
	page_events_drain(take, NULL);
	assert_true(taken >= 256 && taken < 10000);
	assert_int_equal(page_events_lost() - lost, 10000 - taken);
	/* there is room again */
	note(1, 10000);
	page_events_drain(take, NULL);
	assert_int_equal(next_of[1], 10001);
}

static atomic_uint writers_left;

static void *write_notes(void *arg)
{
	const uint32_t mount = (uint32_t)(uintptr_t)arg;

	for (uint32_t k = 0; k < NOTES; k++)
		note(mount, k);
	page_events_thread_release();
	writers_left--;
	page_events_wake();
	return NULL;
}

static void test_page_events__many_threads_and_one_reader(void **state)
{
	const uint64_t lost = page_events_lost();
	pthread_t threads[WRITERS];

	(void)state;
	writers_left = WRITERS;
	for (uint32_t m = 0; m < WRITERS; m++)
		assert_int_equal(
			pthread_create(&threads[m], NULL, write_notes, (void *)(uintptr_t)(m + 1)),
			0);
	while (writers_left) {
		page_events_wait(1000, true);
		page_events_drain(take, NULL);
	}
	for (uint32_t m = 0; m < WRITERS; m++)
		pthread_join(threads[m], NULL);
	page_events_drain(take, NULL);
	assert_int_equal(taken + page_events_lost() - lost, (uint64_t)WRITERS * NOTES);
}

static void *note_one(void *arg)
{
	(void)arg;
	note(1, 0);
	return NULL;
}

static void test_page_events__one_note_wakes_who_sleeps_lightly(void **state)
{
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, note_one, NULL), 0);
	/* for ever, were it not for the note, whenever it comes */
	while (!taken) {
		page_events_wait(-1, true);
		page_events_drain(take, NULL);
	}
	pthread_join(thread, NULL);
}

static void *note_many(void *arg)
{
	(void)arg;
	for (uint32_t k = 0; k < 256; k++)
		note(1, k);
	return NULL;
}

static void test_page_events__half_a_ring_wakes_who_sleeps_fast(void **state)
{
	pthread_t thread;

	(void)state;
	note(2, 0);
	/* one note is no reason */
	page_events_wait(1, false);
	assert_int_equal(pthread_create(&thread, NULL, note_many, NULL), 0);
	page_events_wait(-1, false);
	pthread_join(thread, NULL);
	page_events_drain(take, NULL);
	assert_int_equal(taken, 257);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_page_events__what_does_not_fit_is_lost_and_counted,
				       setup),
		cmocka_unit_test_setup(test_page_events__many_threads_and_one_reader, setup),
		cmocka_unit_test_setup(test_page_events__one_note_wakes_who_sleeps_lightly, setup),
		cmocka_unit_test_setup(test_page_events__half_a_ring_wakes_who_sleeps_fast, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
