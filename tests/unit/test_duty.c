// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/duty.h"
#include "veneer/file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct shared {
	struct duty a, b;
	struct duty_board board;
};

static struct shared *fresh(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(s, MAP_FAILED);
	return s;
}

/* The signal that a process ends by which does this. */
static int end_of(struct shared *s, void (*act)(struct shared *s))
{
	const struct rlimit none = { 0 };
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		/* not the handlers of a sanitizer */
		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_DFL);
		duty_watch();
		file_guard_init();
		duty_note_in(&s->board);
		act(s);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void abort_over_a(struct shared *s)
{
	struct duty *before = duty_begin(&s->b);

	duty_end(before);
	duty_begin(&s->a);
	abort();
}

static void fault_inside(struct shared *s)
{
	duty_begin(&s->a);
	duty_begin(&s->b);
	raise(SIGSEGV);
}

static void fault_after(struct shared *s)
{
	struct duty *first = duty_begin(&s->a), *second = duty_begin(&s->b);

	duty_end(second);
	duty_end(first);
	raise(SIGBUS);
}

static void be_hit(struct shared *s)
{
	pid_t pid = getpid();

	duty_begin(&s->a);
	if (fork() == 0) {
		kill(pid, SIGSEGV);
		_exit(0);
	}
	for (;;)
		pause();
}

static void be_killed(struct shared *s)
{
	duty_begin(&s->a);
	raise(SIGKILL);
}

static void test_duty__what_a_thread_was_at_is_blamed(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, abort_over_a), SIGABRT);
	assert_int_equal(s->board.crash, DUTY_BLAMED);
	assert_true(s->a.is_blamed && !s->b.is_blamed);
	assert_int_equal(s->a.nthreads, 1);
	assert_int_equal(s->b.nthreads, 0);
}

static void test_duty__the_innermost_is_blamed(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, fault_inside), SIGSEGV);
	assert_true(!s->a.is_blamed && s->b.is_blamed);
}

static void test_duty__nothing_is_blamed_that_is_over_or_for_a_signal_from_outside(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, fault_after), SIGBUS);
	assert_int_equal(s->board.crash, DUTY_NOBODY);
	assert_true(!s->a.is_blamed && !s->b.is_blamed && !s->a.nthreads && !s->b.nthreads);
	s = fresh();
	assert_int_equal(end_of(s, be_hit), SIGSEGV);
	assert_int_equal(s->board.crash, DUTY_NOBODY);
	assert_true(!s->a.is_blamed);
	s = fresh();
	assert_int_equal(end_of(s, be_killed), SIGKILL);
	assert_int_equal(s->board.crash, DUTY_NOTHING_KNOWN);
	assert_int_equal(s->a.nthreads, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_duty__what_a_thread_was_at_is_blamed),
		cmocka_unit_test(test_duty__the_innermost_is_blamed),
		cmocka_unit_test(test_duty__nothing_is_blamed_that_is_over_or_for_a_signal_from_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
