// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/recover/activity.h"
#include "veneer/sys/file.h"

#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct shared {
	struct activity a, b;
	struct crash_board board;
	_Atomic int thread; /* 0: not yet */
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

static void exit_7(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	_exit(7);
}

static void exit_8(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	_exit(8);
}

static void test_activity__each_signal_goes_on_to_its_former_handler(void **state)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS };

	(void)state;
	for (size_t k = 0; k < sizeof(signals) / sizeof(*signals); k++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			struct sigaction sa = { .sa_flags = SA_SIGINFO };

			for (size_t n = 0; n < sizeof(signals) / sizeof(*signals); n++) {
				sa.sa_sigaction = n == k ? exit_7 : exit_8;
				sigaction(signals[n], &sa, NULL);
			}
			activity_watch();
			raise(signals[k]);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 7);
	}
}

/* ---- waiting ---- */

static void test_activity__without_a_board_waits_are_not_noted(void **state)
{
	(void)state;
	activity_note_in(NULL);
	assert_int_equal(activity_wait_begin(), -1);
	activity_wait_end(-1);
}

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
	long call; /* SYS_openat, SYS_openat2 */
	_Atomic int thread;
	int fd;
};

/* Of a pipe with a name, which waits for who reads it. */
static void *open_it(void *arg)
{
	struct opener *o = arg;
	struct open_how how = { .flags = (uint64_t)(o->flags | O_CLOEXEC),
				.mode = o->flags & O_CREAT ? 0600 : 0 };

	o->thread = (int)syscall(SYS_gettid);
	o->fd = o->call == SYS_openat
			? open(o->path, o->flags | O_CLOEXEC, 0600)
			: (int)syscall(SYS_openat2, AT_FDCWD, o->path, &how, sizeof(how));
	return NULL;
}

/* The number of the call in which a thread of any process waits; -1: none. */
static long call_of(int thread)
{
	char path[64], text[64];
	long call = -1;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%ld", &call) != 1)
		call = -1;
	close(fd);
	return call;
}

static void await_call(const _Atomic int *thread, long call)
{
	wait_until(*thread && call_of(*thread) == call);
	assert_int_equal(call_of(*thread), call);
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

static void expect_changes_waited_for(struct tree_dirs *d, long call)
{
	char path[PATH_MAX + sizeof("/pipe")];
	struct opener change = {
		.path = path, .flags = O_WRONLY | O_CREAT, .call = call, .fd = -1
	};
	struct opener look = { .path = path, .flags = O_WRONLY, .call = call, .fd = -1 };
	struct reader reader = { .path = path, .waiter = gettid(), .fd = -1 };
	pthread_t threads[3];

	snprintf(path, sizeof(path), "%s/pipe", d->s.path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(activity_await_changes(0), 0);
	assert_int_equal(pthread_create(&threads[0], NULL, open_it, &look), 0);
	await_call(&look.thread, call);
	assert_int_equal(activity_await_changes(0), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, open_it, &change), 0);
	await_call(&change.thread, call);
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
	assert_int_equal(unlink(path), 0);
}

static void test_activity__what_is_changed_is_waited_for_and_nothing_else(void **state)
{
	expect_changes_waited_for(*state, SYS_openat);
	expect_changes_waited_for(*state, SYS_openat2);
}

/* ---- stuck ---- */

/* A directory that a process has locked, and waits itself to lock for a change: all others wait for
 * it, uninterruptibly. */
struct jam {
	struct tree_dirs *d;
	struct shared *s; /* the thread that holds the lock */
	int dir;
	char *page; /* its fault lasts */
	pid_t holder; /* 0: none */
};

/* Processes that the test has left behind. */
static pid_t left[16];
static size_t nleft;

static void *list_into_page(void *arg)
{
	struct jam *j = arg;

	j->s->thread = (int)syscall(SYS_gettid);
	syscall(SYS_getdents64, j->dir, j->page, 4096);
	return NULL;
}

/* False: no faults of the kernel may be taken here. */
static bool make_faults_last(char *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range = { (uintptr_t)page, 4096 },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &r) == 0;
}

static void hold(struct jam *j)
{
	pthread_t thread;

	if (!make_faults_last(j->page) || pthread_create(&thread, NULL, list_into_page, j) != 0)
		_exit(1);
	wait_until(j->s->thread && call_of(j->s->thread) == SYS_getdents64 &&
		   wait_thread_state(j->s->thread) == 'S');
	mkdirat(j->dir, "made", 0700);
	_exit(0);
}

static int jam_setup(void **state)
{
	static struct jam j;
	void *d;
	int r = tree_setup(&d);

	j = (struct jam){ .d = d };
	*state = &j;
	return r;
}

/* False: it cannot be had here. */
static bool jam(struct jam *j)
{
	j->s = fresh();
	j->dir = open(j->d->s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	j->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(j->dir >= 0 && j->page != MAP_FAILED);
	j->holder = fork();
	if (j->holder == 0)
		hold(j);
	wait_until(strchr("DZX", wait_thread_state(j->holder)));
	return wait_thread_state(j->holder) == 'D';
}

/* Ends all processes: what waits for the directory ends with the holder. */
static int jam_teardown(void **state)
{
	struct jam *j = *state;
	void *d = j->d;

	if (j->holder > 0) {
		kill(j->holder, SIGKILL);
		close(j->dir);
		munmap(j->page, 4096);
	}
	while (nleft > 0)
		kill(left[--nleft], SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	return tree_teardown(&d);
}

/* A process of which nothing but one thread in a call is left. */
struct rest {
	struct shared *s;
	const char *path; /* of the directory that is jammed; where there is none: any */
	void (*call)(int dir, const char *path);
	bool is_crash; /* it waits to write its core; else it has ended itself */
	pid_t pid;
};

static void *make_call(void *arg)
{
	struct rest *r = arg;
	int dir = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A test that fails leaves nobody behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r->s->thread = (int)syscall(SYS_gettid);
	r->call(dir, r->path);
	return NULL;
}

/* Until its thread is in that call, in that state. */
static void leave(struct rest *r, long call, char state)
{
	const struct rlimit none = { 0 };
	pthread_t thread;

	r->s = fresh();
	assert_true(nleft < sizeof(left) / sizeof(*left));
	r->pid = fork();
	left[nleft++] = r->pid;
	if (r->pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		activity_watch();
		activity_note_in(&r->s->board);
		pthread_create(&thread, NULL, make_call, r);
		wait_until(r->s->thread && wait_thread_state(r->s->thread) == state &&
			   call_of(r->s->thread) == call);
		if (r->is_crash)
			abort();
		syscall(SYS_exit, 0);
	}
	wait_until(activity_is_dead(r->pid) && wait_thread_state(r->s->thread) == state);
	assert_true(activity_is_dead(r->pid));
	assert_int_equal(wait_thread_state(r->s->thread), state);
}

static void end(struct rest *r)
{
	nleft--;
	kill(r->pid, SIGKILL);
	assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
	munmap(r->s, sizeof(*r->s));
}

static void read_pipe(int dir, const char *path)
{
	int ends[2];
	char byte;

	(void)dir, (void)path;
	if (pipe(ends) == 0 && read(ends[0], &byte, 1) < 0)
		abort();
}

static void enter_ring(int dir, const char *path)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	(void)dir, (void)path;
	syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

static bool has_rings(void)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	close(fd);
	return fd >= 0;
}

static void test_activity__what_a_signal_ends_is_not_stuck(void **state)
{
	struct rest r = { .path = "/", .call = read_pipe };

	(void)state;
	leave(&r, SYS_read, 'S');
	assert_false(activity_is_stuck(&r.s->board, r.pid));
	r.s->board.waiting[3] = r.s->thread;
	assert_true(activity_is_stuck(&r.s->board, r.pid));
	assert_false(activity_is_stuck(&r.s->board, getpid()));
	end(&r);
	if (!has_rings())
		skip();
	r.call = enter_ring;
	leave(&r, SYS_io_uring_enter, 'S');
	assert_true(activity_is_stuck(&r.s->board, r.pid));
	end(&r);
}

static void list(int dir, const char *path)
{
	char entries[512];

	(void)path;
	syscall(SYS_getdents64, dir, entries, sizeof(entries));
}

static void open_none(int dir, const char *path)
{
	(void)path;
	openat(dir, "none", O_RDONLY | O_CLOEXEC);
}

static void open_new(int dir, const char *path)
{
	(void)path;
	openat(dir, "new", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void open_how(int dir, uint64_t flags)
{
	struct open_how how = { .flags = flags, .mode = flags & O_CREAT ? 0600 : 0 };

	syscall(SYS_openat2, dir, "how", &how, sizeof(how));
}

static void open_how_none(int dir, const char *path)
{
	(void)path;
	open_how(dir, O_RDONLY | O_CLOEXEC);
}

static void open_how_new(int dir, const char *path)
{
	(void)path;
	open_how(dir, O_RDWR | O_CREAT | O_CLOEXEC);
}

static void make_dir(int dir, const char *path)
{
	(void)path;
	mkdirat(dir, "sub", 0700);
}

static void test_activity__an_endless_call_is_stuck_unless_it_changes_something(void **state)
{
	static const struct {
		void (*call)(int dir, const char *path);
		long number;
		bool is_stuck;
	} rows[] = {
		{ list, SYS_getdents64, true },	      { open_none, SYS_openat, true },
		{ open_how_none, SYS_openat2, true }, { open_new, SYS_openat, false },
		{ open_how_new, SYS_openat2, false }, { make_dir, SYS_mkdirat, false },
	};
	struct jam *j = *state;

	if (!jam(j))
		skip();
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct rest r = { .path = j->d->s.path, .call = rows[k].call };

		leave(&r, rows[k].number, 'D');
		assert_int_equal(activity_is_stuck(&r.s->board, r.pid), rows[k].is_stuck);
	}
}

/* For one that may not see in which call the threads of others are. */
static bool is_stuck_for_nobody(const struct rest *r)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setresuid(65534, 65534, 65534) < 0)
			abort();
		_exit(activity_is_stuck(&r->s->board, r->pid));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) == 1;
}

static void test_activity__a_call_that_is_not_known_is_not_stuck(void **state)
{
	struct jam *j = *state;
	struct rest r = { .path = j->d->s.path, .call = list };

	if (geteuid() != 0 || !jam(j))
		skip();
	leave(&r, SYS_getdents64, 'D');
	assert_true(activity_is_stuck(&r.s->board, r.pid));
	assert_false(is_stuck_for_nobody(&r));
}

static void test_activity__a_crash_over_a_call_that_does_not_end_is_stuck(void **state)
{
	struct jam *j = *state;
	struct rest r = { .path = j->d->s.path, .call = open_none, .is_crash = true };

	if (geteuid() != 0 || !jam(j))
		skip();
	leave(&r, SYS_openat, 'D');
	assert_int_equal(r.s->board.crashed, r.pid);
	wait_until(wait_thread_state(r.pid) == 'D');
	assert_true(activity_is_stuck(&r.s->board, r.pid));
	assert_false(is_stuck_for_nobody(&r));
	r.s->board.waiting[0] = r.s->thread;
	assert_true(is_stuck_for_nobody(&r));
	r.s->board.crashed = 0;
	assert_false(is_stuck_for_nobody(&r));
}

static void *begin_something(void *arg)
{
	struct shared *s = arg;
	struct activity *before = activity_begin(&s->a);
	stack_t now;
	const bool has_stack = sigaltstack(NULL, &now) == 0 && !(now.ss_flags & SS_DISABLE);

	activity_end(before);
	return has_stack ? s : NULL;
}

/* The handler of a signal needs a second stack to note that the first one overflowed. */
static void test_activity__each_thread_has_a_stack_for_its_signals(void **state)
{
	struct shared *s = fresh();
	pthread_t thread;
	void *r;

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		assert_int_equal(pthread_create(&thread, NULL, begin_something, s), 0);
		assert_int_equal(pthread_join(thread, &r), 0);
		assert_ptr_equal(r, s);
	}
	munmap(s, sizeof(*s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_activity__each_thread_has_a_stack_for_its_signals),
		cmocka_unit_test(test_activity__what_a_thread_was_at_is_blamed),
		cmocka_unit_test(test_activity__the_innermost_is_blamed),
		cmocka_unit_test(
			test_activity__nothing_is_blamed_that_is_over_or_for_a_signal_from_outside),
		cmocka_unit_test(test_activity__each_signal_goes_on_to_its_former_handler),
		cmocka_unit_test(test_activity__without_a_board_waits_are_not_noted),
		cmocka_unit_test(test_activity__threads_that_wait_again_and_again_send_one_signal),
		cmocka_unit_test_setup_teardown(
			test_activity__what_is_changed_is_waited_for_and_nothing_else, tree_setup,
			tree_teardown),
		cmocka_unit_test(test_activity__what_a_signal_ends_is_not_stuck),
		cmocka_unit_test_setup_teardown(
			test_activity__an_endless_call_is_stuck_unless_it_changes_something,
			jam_setup, jam_teardown),
		cmocka_unit_test_setup_teardown(
			test_activity__a_call_that_is_not_known_is_not_stuck, jam_setup,
			jam_teardown),
		cmocka_unit_test_setup_teardown(
			test_activity__a_crash_over_a_call_that_does_not_end_is_stuck, jam_setup,
			jam_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
