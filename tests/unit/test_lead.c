// SPDX-License-Identifier: Apache-2.0
#include "veneer/lead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define START_NS 1000000000000u		/* a clock that has been going for a while */
#define TICK_NS (LEAD_TICK_MS * 1000000u)
#define MANY 10000u

static struct lead lead;
static uint64_t now;

static int setup(void **state)
{
	(void)state;
	lead = (struct lead){ 0 };
	now = START_NS;
	return 0;
}

/* So many requests, so far apart, until a watcher is called. How many it took; 0: none was. */
static unsigned requests_until_called(unsigned most, uint64_t apart_ns)
{
	for (unsigned k = 1; k <= most; k++, now += apart_ns)
		if (lead_request(&lead, now))
			return k;
	return 0;
}

static bool tick(bool has_come, bool is_waiting)
{
	now += TICK_NS;
	return lead_tick(&lead, now, has_come, is_waiting);
}

/* Ticks until it ends, every nth of which finds a request waiting; 0: it goes on. */
static unsigned ticks_until_end(unsigned most, unsigned nth)
{
	for (unsigned k = 1; k <= most; k++)
		if (!tick(true, k % nth == 0))
			return k;
	return 0;
}

static void begin(void)
{
	assert_int_not_equal(requests_until_called(MANY, 1000), 0);
	lead_begin(&lead, now);
}

static void test_lead__close_requests_call_a_watcher_once(void **state)
{
	(void)state;
	assert_int_equal(requests_until_called(MANY, 100000), LEAD_DENSE);
	assert_int_equal(requests_until_called(MANY, 1000), 0);
	assert_false(lead.is_led);
	lead_begin(&lead, now);
	assert_true(lead.is_led);
	assert_int_equal(requests_until_called(MANY, 1000), 0);
}

static void test_lead__requests_far_apart_call_none(void **state)
{
	(void)state;
	assert_int_equal(requests_until_called(MANY, LEAD_DENSE_NS / (LEAD_DENSE - 2)), 0);
}

static void test_lead__ends_when_nothing_comes(void **state)
{
	(void)state;
	begin();
	assert_int_equal(ticks_until_end(MANY, MANY + 1), 0);
	for (unsigned k = 1; k < LEAD_QUIET_TICKS; k++)
		assert_true(tick(false, false));
	assert_false(tick(false, false));
	lead_end(&lead);
	assert_int_equal(requests_until_called(MANY, 1000), LEAD_DENSE);
}

static void test_lead__a_request_that_waits_now_and_then_ends_nothing(void **state)
{
	(void)state;
	begin();
	assert_int_equal(ticks_until_end(MANY, 20), 0);
}

static void test_lead__requests_that_wait_often_end_it_for_a_pause(void **state)
{
	uint64_t ended;

	(void)state;
	begin();
	assert_in_range(ticks_until_end(MANY, 2), 6, 40);
	lead_end(&lead);
	ended = now;
	assert_int_not_equal(requests_until_called(MANY, 100000), 0);
	assert_true(now - ended >= LEAD_PAUSE_NS);
}

static uint64_t pause_after(unsigned quiet_ticks)
{
	uint64_t ended;

	begin();
	for (unsigned k = 0; k < quiet_ticks; k++)
		assert_true(tick(true, false));
	assert_int_not_equal(ticks_until_end(MANY, 1), 0);
	lead_end(&lead);
	ended = now;
	assert_int_not_equal(requests_until_called(MANY * 100, 100000), 0);
	lead_end(&lead);
	return now - ended;
}

static void test_lead__pauses_grow_to_a_bound_and_shrink_again(void **state)
{
	uint64_t pause = 0, before = 0;

	(void)state;
	for (unsigned k = 0; k < 10; k++) {
		before = pause;
		pause = pause_after(0);
		assert_true(pause >= before);
	}
	assert_in_range(pause, LEAD_PAUSE_MAX_NS, LEAD_PAUSE_MAX_NS + 2 * LEAD_DENSE_NS);
	assert_int_equal(before, pause);
	assert_in_range(pause_after(LEAD_LONG_NS / TICK_NS), LEAD_PAUSE_NS, LEAD_PAUSE_NS + 2 * LEAD_DENSE_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_lead__close_requests_call_a_watcher_once, setup),
		cmocka_unit_test_setup(test_lead__requests_far_apart_call_none, setup),
		cmocka_unit_test_setup(test_lead__ends_when_nothing_comes, setup),
		cmocka_unit_test_setup(test_lead__a_request_that_waits_now_and_then_ends_nothing, setup),
		cmocka_unit_test_setup(test_lead__requests_that_wait_often_end_it_for_a_pause, setup),
		cmocka_unit_test_setup(test_lead__pauses_grow_to_a_bound_and_shrink_again, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
