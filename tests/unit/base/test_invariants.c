// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/invariants.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned nchecks;

static const char *check(const char *broken)
{
	nchecks++;
	return broken;
}

static void test_invariants__are_checked_in_builds_with_checks_alone(void **state)
{
	(void)state;
	nchecks = 0;
	INVARIANTS(check(NULL));
#ifdef VENEER_INVARIANTS
	assert_int_equal(nchecks, 1);
#else
	assert_int_equal(nchecks, 0);
#endif
}

#ifndef NDEBUG
static void test_invariants__broken_one_ends_the_process(void **state)
{
	const pid_t child = fork();
	int status;

	(void)state;
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		invariants_assert("a rule");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_invariants__are_checked_in_builds_with_checks_alone),
#ifndef NDEBUG
		cmocka_unit_test(test_invariants__broken_one_ends_the_process),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
