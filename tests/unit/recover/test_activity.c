// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/recover/activity.h"
#include "veneer/sys/file.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct shared {
	struct activity a, b;
	struct crash_board board;
};

static struct shared *fresh(void)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

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
		activity_watch();
		file_guard_init();
		activity_note_in(&s->board);
		act(s);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void abort_over_a(struct shared *s)
{
	struct activity *before = activity_begin(&s->b);

	activity_end(before);
	activity_begin(&s->a);
	abort();
}

static void fault_inside(struct shared *s)
{
	activity_begin(&s->a);
	activity_begin(&s->b);
	raise(SIGSEGV);
}

static void fault_after(struct shared *s)
{
	struct activity *first = activity_begin(&s->a), *second = activity_begin(&s->b);

	activity_end(second);
	activity_end(first);
	raise(SIGBUS);
}

static void be_hit(struct shared *s)
{
	pid_t pid = getpid();

	activity_begin(&s->a);
	if (fork() == 0) {
		kill(pid, SIGSEGV);
		_exit(0);
	}
	for (;;)
		pause();
}

static void be_killed(struct shared *s)
{
	activity_begin(&s->a);
	raise(SIGKILL);
}

static void test_activity__what_a_thread_was_at_is_blamed(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, abort_over_a), SIGABRT);
	assert_int_equal(s->board.crash, ACTIVITY_SUSPECT);
	assert_true(s->a.is_suspect && !s->b.is_suspect);
	assert_int_equal(s->a.nthreads, 1);
	assert_int_equal(s->b.nthreads, 0);
}

static void test_activity__the_innermost_is_blamed(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, fault_inside), SIGSEGV);
	assert_true(!s->a.is_suspect && s->b.is_suspect);
}

static void test_activity__nothing_is_blamed_that_is_over_or_for_a_signal_from_outside(void **state)
{
	struct shared *s = fresh();

	(void)state;
	assert_int_equal(end_of(s, fault_after), SIGBUS);
	assert_int_equal(s->board.crash, ACTIVITY_NOBODY);
	assert_true(!s->a.is_suspect && !s->b.is_suspect && !s->a.nthreads && !s->b.nthreads);
	s = fresh();
	assert_int_equal(end_of(s, be_hit), SIGSEGV);
	assert_int_equal(s->board.crash, ACTIVITY_NOBODY);
	assert_true(!s->a.is_suspect);
	s = fresh();
	assert_int_equal(end_of(s, be_killed), SIGKILL);
	assert_int_equal(s->board.crash, ACTIVITY_NOTHING_KNOWN);
	assert_int_equal(s->a.nthreads, 1);
}

/* ---- waiting ---- */

static void wait_thrice(struct shared *s)
{
	(void)s;
	for (int k = 0; k < 3; k++)
		activity_wait_end(activity_wait_begin());
}

/* How many signals of a child that waited three times have come; its end sends one more. */
static int signals_of_waits(struct shared *s, const sigset_t *child)
{
	const struct timespec none = { 0 };
	int status, ends[2], n = 0;
	char byte;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		activity_note_in(&s->board);
		wait_thrice(s);
		_exit(write(ends[1], "w", 1) == 1 && read(ends[1], &byte, 1) == 0 ? 0 : 1);
	}
	close(ends[1]);
	/* Signals that are pending at the same time are one: take those of the waits before the
	 * end. */
	assert_int_equal(read(ends[0], &byte, 1), 1);
	while (sigtimedwait(child, NULL, &none) == SIGCHLD)
		n++;
	close(ends[0]);
	while (waitpid(pid, &status, 0) < 0)
		;
	while (sigtimedwait(child, NULL, &none) == SIGCHLD)
		n++;
	return n;
}

static void test_activity__threads_that_wait_again_and_again_send_one_signal(void **state)
{
	struct shared *s = fresh();
	uint32_t nwaits = 0;
	sigset_t child;

	(void)state;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	s->board.supervisor = getpid();
	assert_false(activity_keep_watch(&s->board, &nwaits));
	assert_true(signals_of_waits(s, &child) >= 2);
	assert_true(activity_keep_watch(&s->board, &nwaits));
	assert_int_equal(signals_of_waits(s, &child), 1);
	/* They waited since, and then no more. */
	assert_true(activity_keep_watch(&s->board, &nwaits));
	assert_false(activity_keep_watch(&s->board, &nwaits));
	assert_true(signals_of_waits(s, &child) >= 2);
	s->board.waiting[1] = 1;
	assert_true(activity_keep_watch(&s->board, &nwaits));
	assert_true(activity_keep_watch(&s->board, &nwaits));
	s->board.waiting[1] = 0;
	assert_false(activity_keep_watch(&s->board, &nwaits));
	sigprocmask(SIG_UNBLOCK, &child, NULL);
}

/* ---- changes that may not come to an end ---- */

struct opener {
	const char *path;
	int flags;
	_Atomic int thread;
	int fd;
};

/* Of a pipe with a name, which waits for who reads it. */
static void *open_it(void *arg)
{
	struct opener *o = arg;

	o->thread = (int)syscall(SYS_gettid);
	o->fd = open(o->path, o->flags | O_CLOEXEC, 0600);
	return NULL;
}

/* In the call. */
static void await_call(struct opener *o, long call)
{
	char path[64], text[64];
	long now = -1;

	while (now != call) {
		int fd;

		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)o->thread);
		fd = o->thread ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd >= 0) {
			ssize_t n = read(fd, text, sizeof(text) - 1);

			text[n > 0 ? n : 0] = '\0';
			if (sscanf(text, "%ld", &now) != 1)
				now = -1;
			close(fd);
		}
		usleep(1000);
	}
}

struct reader {
	const char *path;
	pid_t waiter; /* is at rest before the reader comes */
	int fd;
};

static void *read_later(void *arg)
{
	struct reader *r = arg;

	wait_until(wait_is_at_rest(r->waiter));
	r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
	return NULL;
}

static void test_activity__what_is_changed_is_waited_for_and_nothing_else(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + sizeof("/pipe")];
	struct opener change = { .path = path, .flags = O_WRONLY | O_CREAT, .fd = -1 };
	struct opener look = { .path = path, .flags = O_WRONLY, .fd = -1 };
	struct reader reader = { .path = path, .waiter = gettid(), .fd = -1 };
	pthread_t threads[3];

	snprintf(path, sizeof(path), "%s/pipe", d->s.path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(activity_await_changes(0), 0);
	assert_int_equal(pthread_create(&threads[0], NULL, open_it, &look), 0);
	await_call(&look, SYS_openat);
	assert_int_equal(activity_await_changes(0), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, open_it, &change), 0);
	await_call(&change, SYS_openat);
	assert_int_equal(activity_await_changes(0), -EBUSY);
	assert_int_equal(activity_await_changes(50), -EBUSY);
	assert_int_equal(pthread_create(&threads[2], NULL, read_later, &reader), 0);
	assert_int_equal(activity_await_changes(60000), 0);
	assert_int_equal(pthread_join(threads[2], NULL), 0);
	assert_int_equal(pthread_join(threads[1], NULL), 0);
	assert_int_equal(pthread_join(threads[0], NULL), 0);
	assert_true(change.fd >= 0 && look.fd >= 0 && reader.fd >= 0);
	close(change.fd);
	close(look.fd);
	close(reader.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_activity__what_a_thread_was_at_is_blamed),
		cmocka_unit_test(test_activity__the_innermost_is_blamed),
		cmocka_unit_test(
			test_activity__nothing_is_blamed_that_is_over_or_for_a_signal_from_outside),
		cmocka_unit_test(test_activity__threads_that_wait_again_and_again_send_one_signal),
		cmocka_unit_test_setup_teardown(
			test_activity__what_is_changed_is_waited_for_and_nothing_else, tree_setup,
			tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
