// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/trace.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define FILES	  64
#define THREADS	  4
#define WINDOW_MS 60000u

static uint64_t files[FILES] __attribute__((aligned(8)));
static struct trace *trace;
static struct trace_touch *touches;

static int setup(void **state)
{
	(void)state;
	touches = NULL;
	return trace_new(WINDOW_MS, &trace);
}

static int teardown(void **state)
{
	(void)state;
	free(touches);
	trace_free(trace);
	return 0;
}

static size_t take(void)
{
	ssize_t n;

	trace_end(trace);
	n = trace_take(trace, &touches);
	assert_true(n >= 0);
	return (size_t)n;
}

static void test_trace__notes_each_extent_once(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		trace_read(trace, &files[0], TRACE_EXTENT_SIZE - 1, 2);
	trace_read(trace, &files[1], 10 * TRACE_EXTENT_SIZE, TRACE_EXTENT_SIZE);
	trace_read(trace, &files[1], 0, 0);
	assert_int_equal(take(), 3);
	assert_ptr_equal(touches[0].file, &files[0]);
	assert_int_equal(touches[0].extent, 0);
	assert_int_equal(touches[1].extent, 1);
	assert_ptr_equal(touches[2].file, &files[1]);
	assert_int_equal(touches[2].extent, 10);
	assert_int_equal(touches[2].kind, TRACE_READ);
	assert_true(touches[2].ms < WINDOW_MS);
}

static void test_trace__kinds_are_told_apart(void **state)
{
	(void)state;
	trace_open(trace, &files[3]);
	trace_write(trace, &files[3]);
	trace_write(trace, &files[3]);
	trace_read(trace, &files[3], 0, 1);
	assert_int_equal(take(), 3);
	for (int kind = TRACE_READ; kind <= TRACE_OPENED; kind++) {
		assert_int_equal(touches[kind].kind, kind);
		assert_int_equal(touches[kind].extent, 0);
		assert_ptr_equal(touches[kind].file, &files[3]);
	}
}

static void test_trace__notes_nothing_after_its_end(void **state)
{
	(void)state;
	trace_end(trace);
	trace_read(trace, &files[0], 0, 1);
	trace_write(trace, &files[0]);
	trace_open(trace, &files[0]);
	assert_int_equal(take(), 0);
}

static void test_trace__ends_with_its_window(void **state)
{
	(void)state;
	trace_free(trace);
	assert_int_equal(trace_new(0, &trace), 0);
	trace_read(trace, &files[0], 0, 1);
	assert_int_equal(take(), 0);
}

static void test_trace__is_bounded(void **state)
{
	(void)state;
	trace_read(trace, &files[0], 0, (size_t)TRACE_SLOTS * 2 * TRACE_EXTENT_SIZE);
	trace_read(trace, &files[1], 0, 1);
	assert_int_equal(take(), TRACE_TOUCHES_MAX);
	assert_int_equal(touches[TRACE_TOUCHES_MAX - 1].extent, TRACE_TOUCHES_MAX - 1);
}

static void test_trace__strange_ranges_are_left_out(void **state)
{
	(void)state;
	trace_read(trace, &files[0], -1, 1);
	trace_read(trace, &files[0], INT64_MAX, 1);
	trace_read(trace, (const char *)&files[0] + 1, 0, 1);
	trace_read(trace, NULL, 0, 1);
	trace_read(trace, &files[0], (off_t)(TRACE_EXTENTS - 1) * TRACE_EXTENT_SIZE, SIZE_MAX >> 2);
	assert_int_equal(take(), 1);
	assert_int_equal(touches[0].extent, TRACE_EXTENTS - 1);
}

static void *read_all(void *arg)
{
	(void)arg;
	for (size_t i = 0; i < FILES; i++)
		trace_read(trace, &files[i], 0, 100 * TRACE_EXTENT_SIZE);
	return NULL;
}

static void test_trace__threads_note_each_touch_once(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(take(), FILES * 100);
	for (size_t i = 0; i < FILES * 100; i++) {
		assert_ptr_equal(touches[i].file, &files[i / 100]);
		assert_int_equal(touches[i].extent, i % 100);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_trace__##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(notes_each_extent_once),
		TEST(kinds_are_told_apart),
		TEST(notes_nothing_after_its_end),
		TEST(ends_with_its_window),
		TEST(is_bounded),
		TEST(strange_ranges_are_left_out),
		TEST(threads_note_each_touch_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
