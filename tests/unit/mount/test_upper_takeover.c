// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/mount/upper_takeover.h"
#include "veneer/mount/workdir.h"

#include <signal.h>
#include <time.h>

struct server {
	struct workdir work;
	int top, fd;
	char err[512], path[PATH_MAX + 64];
};

static void serve(struct tree_dirs *d, struct server *s, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	snprintf(s->path, sizeof(s->path), "%s/work", d->s.path);
	s->top = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(workdir_open(s->top, s->path, &s->work, s->err, sizeof(s->err)), 0);
	assert_int_equal(upper_takeover_listen(s->work.fd, sig, &s->fd), 0);
}

static void leave(struct server *s)
{
	close(s->fd);
	close(s->top);
	workdir_close(&s->work);
}

static bool got(int sig)
{
	const struct timespec no_time = { 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	return sigtimedwait(&set, NULL, &no_time) == sig;
}

static void test_upper_takeover__server_hears_who_asks_for_its_upper(void **state)
{
	struct server s;

	serve(*state, &s, SIGRTMIN + 2);
	assert_false(got(SIGRTMIN + 2));
	assert_false(upper_takeover_is_asked(s.fd, 7, 42));
	upper_takeover_ask(s.top, 7, 42);
	assert_true(got(SIGRTMIN + 2));
	assert_true(upper_takeover_is_asked(s.fd, 7, 42));
	assert_false(upper_takeover_is_asked(s.fd, 7, 42));
	leave(&s);
}

static void test_upper_takeover__what_was_read_is_no_signal(void **state)
{
	struct server s;

	serve(*state, &s, SIGRTMIN + 2);
	upper_takeover_ask(s.top, 7, 43);
	while (got(SIGRTMIN + 2))
		;
	assert_false(upper_takeover_is_asked(s.fd, 7, 42));
	assert_false(got(SIGRTMIN + 2));
	upper_takeover_ask(s.top, 7, 42);
	assert_true(got(SIGRTMIN + 2));
	assert_true(upper_takeover_is_asked(s.fd, 7, 42));
	leave(&s);
}

static void test_upper_takeover__other_uppers_are_not_meant(void **state)
{
	struct server s;

	serve(*state, &s, SIGRTMIN + 2);
	upper_takeover_ask(s.top, 7, 43);
	upper_takeover_ask(s.top, 8, 42);
	assert_true(got(SIGRTMIN + 2));
	assert_false(upper_takeover_is_asked(s.fd, 7, 42));
	/* Among others it is. */
	upper_takeover_ask(s.top, 7, 43);
	upper_takeover_ask(s.top, 7, 42);
	upper_takeover_ask(s.top, 7, 43);
	assert_true(upper_takeover_is_asked(s.fd, 7, 42));
	leave(&s);
}

static void test_upper_takeover__every_server_of_the_work_directory_is_asked(void **state)
{
	struct server a, b;

	serve(*state, &a, SIGRTMIN + 2);
	serve(*state, &b, SIGRTMIN + 3);
	upper_takeover_ask(a.top, 1, 2);
	assert_true(got(SIGRTMIN + 2));
	assert_true(got(SIGRTMIN + 3));
	leave(&a);
	upper_takeover_ask(b.top, 1, 2);
	assert_true(got(SIGRTMIN + 3));
	leave(&b);
}

static void test_upper_takeover__asking_never_waits_and_never_follows(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;
	struct server s;

	tree_put_text(d, "outside/takeover", "");
	tree_put_dir(d, "work/work/veneer-0");
	tree_put_dir(d, "work/work/veneer-1");
	tree_put_dir(d, "work/work/veneer-2");
	assert_int_equal(mkfifoat(d->s.fd, "work/work/veneer-0/takeover", 0600), 0);
	assert_int_equal(
		symlinkat("../../../outside/takeover", d->s.fd, "work/work/veneer-1/takeover"), 0);
	tree_put_text(d, "work/work/veneer-2/takeover", "");
	assert_int_equal(symlinkat("../../outside", d->s.fd, "work/work/veneer-3"), 0);
	snprintf(s.path, sizeof(s.path), "%s/work", d->s.path);
	s.top = open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	upper_takeover_ask(s.top, 1, 2);
	close(s.top);
	assert_int_equal(fstatat(d->s.fd, "outside/takeover", &st, 0), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(fstatat(d->s.fd, "work/work/veneer-2/takeover", &st, 0), 0);
	assert_int_equal(st.st_size, 0);
	upper_takeover_ask(-1, 1, 2);
	serve(d, &s, SIGRTMIN + 2);
	/* More than a pipe holds. */
	for (int k = 0; k < 10000; k++)
		upper_takeover_ask(s.top, 1, 2);
	assert_true(upper_takeover_is_asked(s.fd, 1, 2));
	while (got(SIGRTMIN + 2))
		;
	leave(&s);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_upper_takeover__server_hears_who_asks_for_its_upper),
		row(test_upper_takeover__what_was_read_is_no_signal),
		row(test_upper_takeover__other_uppers_are_not_meant),
		row(test_upper_takeover__every_server_of_the_work_directory_is_asked),
		row(test_upper_takeover__asking_never_waits_and_never_follows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
