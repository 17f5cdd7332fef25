// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/privilege.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static void test_privilege__is_what_the_kernel_lets_be_written(void **state)
{
	char path[] = "/var/tmp/veneer-privilege-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(privilege_is_trusted(), fsetxattr(fd, "trusted.veneer", "", 0, 0) == 0);
	close(fd);
}

/* Not even with all capabilities of one. */
static void test_privilege__user_namespace_has_none(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) < 0 ? 77 : privilege_is_trusted());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* Before this process has asked: what the child is told is then its own. */
		cmocka_unit_test(test_privilege__user_namespace_has_none),
		cmocka_unit_test(test_privilege__is_what_the_kernel_lets_be_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
