// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/recover/supervisor_state.h"

#include <sys/wait.h>

struct seen {
	struct supervisor_state *l;
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
		supervisor_state_drop(s->l, place);
}

static void test_supervisor_state__keeps_what_was_put_and_forgets_what_was_dropped(void **state)
{
	struct seen s = { .n = 0 };
	uint32_t zero, seven;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &s.l), 0);
	assert_int_equal(supervisor_state_put(s.l, 0, &zero), 0);
	assert_int_equal(supervisor_state_put(s.l, 7, &seven), 0);
	supervisor_state_drop(s.l, zero);
	supervisor_state_each(s.l, see, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.fds[0], 7);
	assert_int_equal(s.places[0], seven);
	s.drops = true;
	supervisor_state_each(s.l, see, &s);
	s.n = 0;
	supervisor_state_each(s.l, see, &s);
	assert_int_equal(s.n, 0);
}

static void test_supervisor_state__is_full_at_its_bound_and_not_before(void **state)
{
	struct supervisor_state *l;
	uint32_t place;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	for (unsigned k = 0; k < SUPERVISOR_STATE_MOUNTS_MAX; k++)
		assert_int_equal(supervisor_state_put(l, (int)k, &place), 0);
	assert_int_equal(supervisor_state_put(l, 1, &place), -ENOSPC);
	supervisor_state_drop(l, 5);
	assert_int_equal(supervisor_state_put(l, 1, &place), 0);
	assert_int_equal(place, 5);
}

/* As one that could not be had. */
static void test_supervisor_state__place_behind_the_last_is_none(void **state)
{
	static const uint32_t places[] = { SUPERVISOR_STATE_MOUNTS_MAX, UINT32_MAX };
	struct supervisor_state *l;
	char want[4096];

	(void)state;
	memset(want, 'x', sizeof(want));
	assert_int_equal(supervisor_state_new(sizeof(want), &l), 0);
	memcpy(supervisor_state_extra(l), want, sizeof(want));
	for (size_t k = 0; k < sizeof(places) / sizeof(*places); k++) {
		supervisor_state_note_cost(l, places[k], 7);
		supervisor_state_drop(l, places[k]);
		assert_int_equal(supervisor_state_cost(l, places[k]), 0);
		assert_null(supervisor_state_activity(l, places[k]));
	}
	assert_memory_equal(supervisor_state_extra(l), want, sizeof(want));
}

static void test_supervisor_state__more_than_there_is_memory_for_is_an_error(void **state)
{
	struct supervisor_state *l = NULL;

	(void)state;
	assert_int_equal(supervisor_state_new(SIZE_MAX / 2, &l), -ENOMEM);
	assert_null(l);
}

static void test_supervisor_state__what_a_dead_process_wrote_is_there(void **state)
{
	struct seen s = { .n = 0 };
	uint64_t key;
	int status;

	(void)state;
	assert_int_equal(supervisor_state_new(100, &s.l), 0);
	key = supervisor_state_key(s.l);
	assert_int_not_equal(key, 0);

	pid_t pid = fork();

	if (pid == 0) {
		uint32_t place;

		supervisor_state_put(s.l, 42, &place);
		supervisor_state_key(s.l);
		((char *)supervisor_state_extra(s.l))[99] = 'x';
		supervisor_state_note_death(s.l);
		supervisor_state_leave(s.l);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	supervisor_state_each(s.l, see, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.fds[0], 42);
	assert_int_equal(supervisor_state_key(s.l), key + 2);
	assert_int_equal(((char *)supervisor_state_extra(s.l))[99], 'x');
	assert_int_equal(supervisor_state_deaths(s.l), 1);
	assert_true(supervisor_state_is_left(s.l));
}

static void test_supervisor_state__mounts_are_handed_to_one_only(void **state)
{
	struct supervisor_state *l;

	(void)state;
	assert_int_equal(supervisor_state_new(10, &l), 0);
	assert_int_equal(supervisor_state_extra_bytes(l), 10);
	assert_int_equal(supervisor_state_take_hand_over(l), -1);
	assert_int_equal(supervisor_state_hand_over(l, 0), 0);
	assert_int_equal(supervisor_state_hand_over(l, 5), -EBUSY);
	assert_int_equal(supervisor_state_take_hand_over(l), 0);
	assert_int_equal(supervisor_state_take_hand_over(l), -1);
	assert_int_equal(supervisor_state_hand_over(l, 5), 0);
	assert_int_equal(supervisor_state_going(l), SUPERVISOR_STATE_STAYS);
	supervisor_state_note_going(l, SUPERVISOR_STATE_IS_WITHDRAWN);
	assert_int_equal(supervisor_state_going(l), SUPERVISOR_STATE_IS_WITHDRAWN);
	assert_int_equal(supervisor_state_word(l), -1);
	supervisor_state_set_word(l, 6);
	assert_int_equal(supervisor_state_word(l), 6);
	supervisor_state_set_word(l, -1);
	assert_int_equal(supervisor_state_word(l), -1);
	supervisor_state_set_last_key(l, 77);
	assert_int_equal(supervisor_state_key(l), 78);
	assert_int_equal(supervisor_state_last_key(l), 78);
}

static void test_supervisor_state__gives_up_what_servers_crash_over_again_and_again(void **state)
{
	struct supervisor_state *l;
	uint32_t bad, good;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	assert_int_equal(supervisor_state_put(l, 3, &bad), 0);
	assert_int_equal(supervisor_state_put(l, 4, &good), 0);
	for (unsigned k = 0; k < SUPERVISOR_STATE_STRIKES; k++) {
		assert_false(supervisor_state_is_given_up(l, bad));
		/* both were being served; which of them it was is known */
		supervisor_state_activity(l, bad)->nthreads =
			supervisor_state_activity(l, good)->nthreads = 1;
		supervisor_state_activity(l, bad)->is_suspect = true;
		supervisor_state_board(l)->crash = ACTIVITY_SUSPECT;
		assert_true(supervisor_state_judge(l, true));
	}
	assert_true(supervisor_state_is_given_up(l, bad));
	assert_false(supervisor_state_is_given_up(l, good));
	assert_int_equal(supervisor_state_activity(l, good)->nthreads, 0);
	supervisor_state_drop(l, bad);
	assert_int_equal(supervisor_state_put(l, 5, &bad), 0);
	assert_false(supervisor_state_is_given_up(l, bad));
}

static void test_supervisor_state__kills_and_crashes_over_nothing_are_nobodys(void **state)
{
	struct supervisor_state *l;
	uint32_t place;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	assert_int_equal(supervisor_state_put(l, 3, &place), 0);
	for (unsigned k = 0; k < 2 * SUPERVISOR_STATE_STRIKES; k++) {
		supervisor_state_activity(l, place)->nthreads = 1;
		assert_false(supervisor_state_judge(l, false));
		supervisor_state_activity(l, place)->nthreads = 1;
		supervisor_state_board(l)->crash = ACTIVITY_NOBODY;
		supervisor_state_board(l)->crashed = supervisor_state_board(l)->waiting[k] = 7;
		assert_false(supervisor_state_judge(l, true));
		assert_int_equal(supervisor_state_board(l)->crashed, 0);
		assert_int_equal(supervisor_state_board(l)->waiting[k], 0);
	}
	assert_false(supervisor_state_is_given_up(l, place));
	/* nothing is known but who was being served */
	for (unsigned k = 0; k < SUPERVISOR_STATE_STRIKES; k++) {
		supervisor_state_activity(l, place)->nthreads = 1;
		assert_true(supervisor_state_judge(l, true));
	}
	assert_true(supervisor_state_is_given_up(l, place));
}

static void test_supervisor_state__what_was_asked_for_is_to_blame_and_no_mount(void **state)
{
	struct supervisor_state *l;
	uint32_t place;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	assert_int_equal(supervisor_state_put(l, 3, &place), 0);
	for (unsigned k = 0; k < 2 * SUPERVISOR_STATE_STRIKES; k++) {
		supervisor_state_activity(l, place)->nthreads =
			supervisor_state_asked(l)->nthreads = 1;
		supervisor_state_asked(l)->is_suspect = true;
		supervisor_state_board(l)->crash = ACTIVITY_SUSPECT;
		assert_true(supervisor_state_judge(l, true));
		/* nothing is known but that somebody was at it */
		supervisor_state_asked(l)->nthreads = 1;
		assert_true(supervisor_state_judge(l, true));
		supervisor_state_asked(l)->nthreads = 1;
		assert_false(supervisor_state_judge(l, false));
		assert_int_equal(supervisor_state_asked(l)->nthreads, 0);
		assert_false(supervisor_state_judge(l, true));
	}
	assert_false(supervisor_state_is_given_up(l, place));
}

static void test_supervisor_state__remembers_what_going_on_took(void **state)
{
	struct supervisor_state *l;
	uint32_t place;

	(void)state;
	assert_int_equal(supervisor_state_new(0, &l), 0);
	assert_int_equal(supervisor_state_put(l, 3, &place), 0);
	assert_int_equal(supervisor_state_cost(l, place), 0);
	supervisor_state_note_cost(l, place, 7);
	assert_int_equal(supervisor_state_cost(l, place), 7);
	supervisor_state_drop(l, place);
	assert_int_equal(supervisor_state_put(l, 3, &place), 0);
	assert_int_equal(supervisor_state_cost(l, place), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_supervisor_state__keeps_what_was_put_and_forgets_what_was_dropped),
		cmocka_unit_test(test_supervisor_state__is_full_at_its_bound_and_not_before),
		cmocka_unit_test(test_supervisor_state__place_behind_the_last_is_none),
		cmocka_unit_test(test_supervisor_state__more_than_there_is_memory_for_is_an_error),
		cmocka_unit_test(test_supervisor_state__what_a_dead_process_wrote_is_there),
		cmocka_unit_test(test_supervisor_state__mounts_are_handed_to_one_only),
		cmocka_unit_test(
			test_supervisor_state__gives_up_what_servers_crash_over_again_and_again),
		cmocka_unit_test(test_supervisor_state__kills_and_crashes_over_nothing_are_nobodys),
		cmocka_unit_test(
			test_supervisor_state__what_was_asked_for_is_to_blame_and_no_mount),
		cmocka_unit_test(test_supervisor_state__remembers_what_going_on_took),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
