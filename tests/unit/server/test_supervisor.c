// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "server/supervisor.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Shared with the processes that are started. */
struct shared {
	struct supervisor_state *l;
	int runs, fd, deaths_wanted, status;
	pid_t pids[32];
	bool are_ids_right;
	int asked, answer; /* of hand_over */
};

static struct shared *share(void)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(s, MAP_FAILED);
	assert_int_equal(supervisor_state_new(0, &s->l), 0);
	return s;
}

/* Dies as often as is wanted, leaving a descriptor, and then leaves with 7. */
static int die_and_leave(void *arg)
{
	struct shared *s = arg;

	s->pids[s->runs] = getpid();
	if (s->runs++ < s->deaths_wanted) {
		s->fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
		kill(getpid(), SIGKILL);
	}
	supervisor_state_leave(s->l);
	return 7;
}

static int hand_over(int fd, void *arg)
{
	struct shared *s = arg;

	s->asked += fd;
	return s->answer;
}

/* In a process of its own, since it changes how signals are taken. */
static int supervised(struct shared *s, int (*serve)(void *arg))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(supervisor_run(s->l, NULL, serve, hand_over, s) & 0xff);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_supervisor__starts_another_until_one_leaves(void **state)
{
	struct shared *s = share();

	(void)state;
	s->deaths_wanted = 3;
	assert_int_equal(supervised(s, die_and_leave), 7);
	assert_int_equal(s->runs, 4);
	assert_int_equal(supervisor_state_deaths(s->l), 3);
	assert_int_not_equal(s->pids[0], s->pids[1]);
}

static int exit_unasked(void *arg)
{
	struct shared *s = arg;

	if (s->runs++ == 0)
		exit(0);
	supervisor_state_leave(s->l);
	return 3;
}

static void test_supervisor__an_exit_that_was_not_said_is_a_death(void **state)
{
	struct shared *s = share();

	(void)state;
	assert_int_equal(supervised(s, exit_unasked), 3);
	assert_int_equal(s->runs, 2);
}

static int crash(void *arg)
{
	struct shared *s = arg;

	s->runs++;
	_exit(1);
}

static void test_supervisor__gives_up_what_crashes_at_once_every_time(void **state)
{
	struct shared *s = share();

	(void)state;
	assert_int_equal(supervised(s, crash), 1);
	assert_in_range(s->runs, 5, 31);
}

static int lack_threads(void *arg)
{
	struct shared *s = arg;

	if (s->runs++ < 13)
		return SUPERVISE_AGAIN;
	supervisor_state_leave(s->l);
	return 5;
}

static void test_supervisor__does_not_give_up_what_gets_no_threads(void **state)
{
	struct shared *s = share();

	(void)state;
	assert_int_equal(supervised(s, lack_threads), 5);
	assert_int_equal(s->runs, 14);
}

static void test_supervisor__does_not_give_up_what_somebody_kills(void **state)
{
	struct shared *s = share();

	(void)state;
	s->deaths_wanted = 31;
	assert_int_equal(supervised(s, die_and_leave), 7);
}

static int find_descriptor(void *arg)
{
	struct shared *s = arg;
	char text[16] = "";

	if (s->runs++ == 0) {
		int ends[2];

		if (pipe(ends) < 0 || write(ends[1], "kept", 4) != 4)
			_exit(1);
		s->fd = ends[0];
		kill(getpid(), SIGKILL);
	}
	supervisor_state_leave(s->l);
	return read(s->fd, text, 4) == 4 && !strcmp(text, "kept") ? 0 : 9;
}

static void test_supervisor__descriptors_of_the_dead_stay_open(void **state)
{
	(void)state;
	assert_int_equal(supervised(share(), find_descriptor), 0);
}

static int wait_for_signal(void *arg)
{
	struct shared *s = arg;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGTERM);
	s->runs = 1;
	sigwait(&set, &sig);
	s->status = sig;
	sigwait(&set, &sig);
	supervisor_state_leave(s->l);
	return sig;
}

/* A second SIGTERM, as it leaves, does not end it. */
static void leave_and_be_told_again(struct shared *s)
{
	int r = supervisor_run(s->l, NULL, wait_for_signal, NULL, s);

	raise(SIGTERM);
	_exit(r);
}

static void test_supervisor__hands_signals_on(void **state)
{
	struct shared *s = share();
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		leave_and_be_told_again(s);
	wait_until(*(volatile int *)&s->runs);
	kill(pid, SIGUSR1);
	wait_until(*(volatile int *)&s->status);
	assert_int_equal(s->status, SIGUSR1);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), SIGTERM);
}

static void *lock_and_unlock(void *arg)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t m;
	bool *is_right = arg;

	/* The mutex knows its owner by the thread's id. */
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&m, &attr);
	*is_right = pthread_mutex_lock(&m) == 0 && pthread_mutex_lock(&m) == EDEADLK &&
		    pthread_mutex_unlock(&m) == 0 && pthread_kill(pthread_self(), 0) == 0;
	return NULL;
}

static int use_threads(void *arg)
{
	struct shared *s = arg;
	bool is_right[2] = { false, false };
	pthread_t t;

	lock_and_unlock(&is_right[0]);
	if (pthread_create(&t, NULL, lock_and_unlock, &is_right[1]) == 0)
		pthread_join(t, NULL);
	s->are_ids_right = is_right[0] && is_right[1];
	supervisor_state_leave(s->l);
	return 0;
}

static void test_supervisor__threads_work_in_the_server(void **state)
{
	struct shared *s = share();

	(void)state;
	assert_int_equal(supervised(s, use_threads), 0);
	assert_true(s->are_ids_right);
}

static int hand_over_and_leave(void *arg)
{
	struct shared *s = arg;

	if (s->runs++ == 0) {
		supervisor_state_hand_over(s->l, 42);
		kill(getpid(), SIGKILL);
	}
	supervisor_state_leave(s->l);
	return 7;
}

static void test_supervisor__one_that_hands_over_is_the_last(void **state)
{
	struct shared *s = share();

	(void)state;
	assert_int_equal(supervised(s, hand_over_and_leave), 0);
	assert_int_equal(s->asked, 42);
	assert_int_equal(s->runs, 1);
}

static void test_supervisor__starts_another_where_nobody_takes(void **state)
{
	struct shared *s = share();

	(void)state;
	s->answer = -EPIPE;
	assert_int_equal(supervised(s, hand_over_and_leave), 7);
	assert_int_equal(s->asked, 42);
	assert_int_equal(s->runs, 2);
	assert_int_equal(supervisor_state_take_hand_over(s->l), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_supervisor__starts_another_until_one_leaves),
		cmocka_unit_test(test_supervisor__an_exit_that_was_not_said_is_a_death),
		cmocka_unit_test(test_supervisor__gives_up_what_crashes_at_once_every_time),
		cmocka_unit_test(test_supervisor__does_not_give_up_what_gets_no_threads),
		cmocka_unit_test(test_supervisor__does_not_give_up_what_somebody_kills),
		cmocka_unit_test(test_supervisor__descriptors_of_the_dead_stay_open),
		cmocka_unit_test(test_supervisor__hands_signals_on),
		cmocka_unit_test(test_supervisor__threads_work_in_the_server),
		cmocka_unit_test(test_supervisor__one_that_hands_over_is_the_last),
		cmocka_unit_test(test_supervisor__starts_another_where_nobody_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
