// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/ledger.h"

#include <sys/wait.h>

struct seen {
	struct ledger *l;
	int fds[8];
	uint32_t places[8];
	size_t n;
	bool drops;
};

static void see(int fd, uint32_t place, void *arg)
{
	struct seen *s = arg;

	assert_true(s->n < 8);
	s->fds[s->n] = fd;
	s->places[s->n++] = place;
	if (s->drops)
		ledger_drop(s->l, place);
}

static void test_ledger__keeps_what_was_put_and_forgets_what_was_dropped(void **state)
{
	struct seen s = { .n = 0 };
	uint32_t zero, seven;

	(void)state;
	assert_int_equal(ledger_new(0, &s.l), 0);
	assert_int_equal(ledger_put(s.l, 0, &zero), 0);
	assert_int_equal(ledger_put(s.l, 7, &seven), 0);
	ledger_drop(s.l, zero);
	ledger_each(s.l, see, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.fds[0], 7);
	assert_int_equal(s.places[0], seven);
	s.drops = true;
	ledger_each(s.l, see, &s);
	s.n = 0;
	ledger_each(s.l, see, &s);
	assert_int_equal(s.n, 0);
}

static void test_ledger__is_full_at_its_bound_and_not_before(void **state)
{
	struct ledger *l;
	uint32_t place;

	(void)state;
	assert_int_equal(ledger_new(0, &l), 0);
	for (unsigned k = 0; k < LEDGER_MOUNTS_MAX; k++)
		assert_int_equal(ledger_put(l, (int)k, &place), 0);
	assert_int_equal(ledger_put(l, 1, &place), -ENOSPC);
	ledger_drop(l, 5);
	assert_int_equal(ledger_put(l, 1, &place), 0);
	assert_int_equal(place, 5);
}

static void test_ledger__what_a_dead_process_wrote_is_there(void **state)
{
	struct seen s = { .n = 0 };
	uint64_t key;
	int status;

	(void)state;
	assert_int_equal(ledger_new(100, &s.l), 0);
	key = ledger_key(s.l);
	assert_int_not_equal(key, 0);

	pid_t pid = fork();

	if (pid == 0) {
		uint32_t place;

		ledger_put(s.l, 42, &place);
		ledger_key(s.l);
		((char *)ledger_extra(s.l))[99] = 'x';
		ledger_note_death(s.l);
		ledger_leave(s.l);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	ledger_each(s.l, see, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.fds[0], 42);
	assert_int_equal(ledger_key(s.l), key + 2);
	assert_int_equal(((char *)ledger_extra(s.l))[99], 'x');
	assert_int_equal(ledger_deaths(s.l), 1);
	assert_true(ledger_is_left(s.l));
}

static void test_ledger__mounts_are_handed_to_one_only(void **state)
{
	struct ledger *l;

	(void)state;
	assert_int_equal(ledger_new(10, &l), 0);
	assert_int_equal(ledger_extra_bytes(l), 10);
	assert_int_equal(ledger_take_hand_over(l), -1);
	assert_int_equal(ledger_hand_over(l, 0), 0);
	assert_int_equal(ledger_hand_over(l, 5), -EBUSY);
	assert_int_equal(ledger_take_hand_over(l), 0);
	assert_int_equal(ledger_take_hand_over(l), -1);
	assert_int_equal(ledger_hand_over(l, 5), 0);
	assert_int_equal(ledger_going(l), LEDGER_STAYS);
	ledger_note_going(l, LEDGER_IS_WITHDRAWN);
	assert_int_equal(ledger_going(l), LEDGER_IS_WITHDRAWN);
	assert_int_equal(ledger_word(l), -1);
	ledger_set_word(l, 6);
	assert_int_equal(ledger_word(l), 6);
	ledger_set_word(l, -1);
	assert_int_equal(ledger_word(l), -1);
	ledger_set_last_key(l, 77);
	assert_int_equal(ledger_key(l), 78);
	assert_int_equal(ledger_last_key(l), 78);
}

static void test_ledger__gives_up_what_servers_crash_over_again_and_again(void **state)
{
	struct ledger *l;
	uint32_t bad, good;

	(void)state;
	assert_int_equal(ledger_new(0, &l), 0);
	assert_int_equal(ledger_put(l, 3, &bad), 0);
	assert_int_equal(ledger_put(l, 4, &good), 0);
	for (unsigned k = 0; k < LEDGER_STRIKES; k++) {
		assert_false(ledger_is_given_up(l, bad));
		/* both were being served; which of them it was is known */
		ledger_duty(l, bad)->nthreads = ledger_duty(l, good)->nthreads = 1;
		ledger_duty(l, bad)->is_blamed = true;
		ledger_board(l)->crash = DUTY_BLAMED;
		assert_true(ledger_judge(l, true));
	}
	assert_true(ledger_is_given_up(l, bad));
	assert_false(ledger_is_given_up(l, good));
	assert_int_equal(ledger_duty(l, good)->nthreads, 0);
	ledger_drop(l, bad);
	assert_int_equal(ledger_put(l, 5, &bad), 0);
	assert_false(ledger_is_given_up(l, bad));
}

static void test_ledger__kills_and_crashes_over_nothing_are_nobodys(void **state)
{
	struct ledger *l;
	uint32_t place;

	(void)state;
	assert_int_equal(ledger_new(0, &l), 0);
	assert_int_equal(ledger_put(l, 3, &place), 0);
	for (unsigned k = 0; k < 2 * LEDGER_STRIKES; k++) {
		ledger_duty(l, place)->nthreads = 1;
		assert_false(ledger_judge(l, false));
		ledger_duty(l, place)->nthreads = 1;
		ledger_board(l)->crash = DUTY_NOBODY;
		ledger_board(l)->crashed = ledger_board(l)->waiting[k] = 7;
		assert_false(ledger_judge(l, true));
		assert_int_equal(ledger_board(l)->crashed, 0);
		assert_int_equal(ledger_board(l)->waiting[k], 0);
	}
	assert_false(ledger_is_given_up(l, place));
	/* nothing is known but who was being served */
	for (unsigned k = 0; k < LEDGER_STRIKES; k++) {
		ledger_duty(l, place)->nthreads = 1;
		assert_true(ledger_judge(l, true));
	}
	assert_true(ledger_is_given_up(l, place));
}

static void test_ledger__what_was_asked_for_is_to_blame_and_no_mount(void **state)
{
	struct ledger *l;
	uint32_t place;

	(void)state;
	assert_int_equal(ledger_new(0, &l), 0);
	assert_int_equal(ledger_put(l, 3, &place), 0);
	for (unsigned k = 0; k < 2 * LEDGER_STRIKES; k++) {
		ledger_duty(l, place)->nthreads = ledger_asked(l)->nthreads = 1;
		ledger_asked(l)->is_blamed = true;
		ledger_board(l)->crash = DUTY_BLAMED;
		assert_true(ledger_judge(l, true));
		/* nothing is known but that somebody was at it */
		ledger_asked(l)->nthreads = 1;
		assert_true(ledger_judge(l, true));
		ledger_asked(l)->nthreads = 1;
		assert_false(ledger_judge(l, false));
		assert_int_equal(ledger_asked(l)->nthreads, 0);
		assert_false(ledger_judge(l, true));
	}
	assert_false(ledger_is_given_up(l, place));
}

static void test_ledger__remembers_what_going_on_took(void **state)
{
	struct ledger *l;
	uint32_t place;

	(void)state;
	assert_int_equal(ledger_new(0, &l), 0);
	assert_int_equal(ledger_put(l, 3, &place), 0);
	assert_int_equal(ledger_cost(l, place), 0);
	ledger_note_cost(l, place, 7);
	assert_int_equal(ledger_cost(l, place), 7);
	ledger_drop(l, place);
	assert_int_equal(ledger_put(l, 3, &place), 0);
	assert_int_equal(ledger_cost(l, place), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ledger__keeps_what_was_put_and_forgets_what_was_dropped),
		cmocka_unit_test(test_ledger__is_full_at_its_bound_and_not_before),
		cmocka_unit_test(test_ledger__what_a_dead_process_wrote_is_there),
		cmocka_unit_test(test_ledger__mounts_are_handed_to_one_only),
		cmocka_unit_test(test_ledger__gives_up_what_servers_crash_over_again_and_again),
		cmocka_unit_test(test_ledger__kills_and_crashes_over_nothing_are_nobodys),
		cmocka_unit_test(test_ledger__what_was_asked_for_is_to_blame_and_no_mount),
		cmocka_unit_test(test_ledger__remembers_what_going_on_took),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
