// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/server/sandbox_setup.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char *find(const char *const *env, const char *name)
{
	const size_t len = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

static void test_sandbox_setup__environment_of_the_starter_stays_behind(void **state)
{
	const char *const *env;
	size_t n = 0;

	(void)state;
	setenv("LD_PRELOAD", "/tmp/evil.so", 1);
	setenv("HOME", "/root", 1);
	setenv("PATH", "/tmp", 1);
	setenv("VENEER_STATE_DIR", "/state", 1);
	setenv("VENEER_LOG", "file:/tmp/log", 1);
	setenv("VENEER_CGROUP", "", 1);
	unsetenv("VENEER_METRICS");
	unsetenv("VENEER_CPU_LATENCY");
	env = sandbox_setup_environment();
	assert_string_equal(find(env, "PATH"), "/usr/sbin:/usr/bin:/sbin:/bin");
	assert_string_equal(find(env, "VENEER_LOG"), "file:/tmp/log");
	/* Empty says something. */
	assert_string_equal(find(env, "VENEER_CGROUP"), "");
	assert_null(find(env, "LD_PRELOAD"));
	assert_null(find(env, "HOME"));
	assert_null(find(env, "VENEER_STATE_DIR"));
	assert_null(find(env, "VENEER_METRICS"));
	while (env[n])
		n++;
	assert_int_equal(n, 3);
	unsetenv("LD_PRELOAD");
}

/* In a child, which is not the test's process any more. */
static int in_child(int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int hold_fds(void)
{
	struct stat st, null;
	int fd;

	for (int k = 0; k <= 2; k++)
		close(k);
	sandbox_setup_hold_standard_fds();
	if (stat("/dev/null", &null) < 0)
		return 1;
	for (int k = 0; k <= 2; k++)
		if (fstat(k, &st) < 0 || st.st_rdev != null.st_rdev)
			return 2 + k;
	/* No more than those. */
	fd = open("/dev/null", O_RDONLY);
	return fd > 2 ? 0 : 9;
}

static void test_sandbox_setup__standard_descriptors_exist(void **state)
{
	(void)state;
	assert_int_equal(in_child(hold_fds), 0);
}

static int prepare(void)
{
	struct rlimit rl = { .rlim_cur = 4096 }, now;
	mode_t mask;

	umask(077);
	if (getrlimit(RLIMIT_FSIZE, &now) < 0)
		return 1;
	rl.rlim_max = now.rlim_max;
	if (setrlimit(RLIMIT_FSIZE, &rl) < 0)
		return 2;
	sandbox_setup_prepare();
	mask = umask(0);
	if (mask != 0)
		return 3;
	if (getrlimit(RLIMIT_FSIZE, &now) < 0 || now.rlim_cur != now.rlim_max)
		return 4;
	/* None of these kills. */
	raise(SIGPIPE);
	raise(SIGXFSZ);
	raise(SIGIO);
	return 0;
}

static void test_sandbox_setup__signals_and_limits_of_the_starter_do_not_kill(void **state)
{
	(void)state;
	assert_int_equal(in_child(prepare), 0);
}

static int lift(void)
{
	struct rlimit rl, now;

	if (getrlimit(RLIMIT_CPU, &rl) < 0)
		return 1;
	rl.rlim_cur = 100;
	if (setrlimit(RLIMIT_CPU, &rl) < 0)
		return 2;
	sandbox_setup_lift_limits();
	/* As far as privileges allow. */
	return getrlimit(RLIMIT_CPU, &now) == 0 && now.rlim_cur >= rl.rlim_max ? 0 : 3;
}

static void test_sandbox_setup__limits_of_the_starter_are_lifted(void **state)
{
	(void)state;
	assert_int_equal(in_child(lift), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandbox_setup__environment_of_the_starter_stays_behind),
		cmocka_unit_test(test_sandbox_setup__standard_descriptors_exist),
		cmocka_unit_test(test_sandbox_setup__signals_and_limits_of_the_starter_do_not_kill),
		cmocka_unit_test(test_sandbox_setup__limits_of_the_starter_are_lifted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
