// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/sandbox.h"
#include "veneer/base/cleanup.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Of this process. */
static uint64_t status_of(const char *key, int base)
{
	char line[256];
	uint64_t found = UINT64_MAX;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			found = strtoull(line + strlen(key), NULL, base);
	if (f)
		fclose(f);
	return found;
}

/* Run fn in a sandboxed process; returns its result, 0 to 127. */
static int in_confined(bool mounts, int (*fn)(void))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		sandbox_enter(mounts);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool is_denied(long r)
{
	return r == -1 && errno == EPERM;
}

static int try_denied(void)
{
	char *argv[] = { NULL };

	if (!is_denied(execve("/bin/true", argv, argv)))
		return 1;
	if (!is_denied(syscall(SYS_bpf, 0, NULL, 0)) ||
	    !is_denied(syscall(SYS_keyctl, 0, 0, 0, 0, 0)))
		return 2;
	if (!is_denied(unshare(CLONE_NEWUSER)) || !is_denied(unshare(0)))
		return 3;
	if (!is_denied(syscall(SYS_open_by_handle_at, -1, NULL, 0)))
		return 4;
	if (!is_denied(syscall(SYS_setresuid, -1, -1, -1)))
		return 5;
	return 0;
}

static void test_sandbox__calls_that_serving_never_needs_are_denied(void **state)
{
	(void)state;
	assert_int_equal(in_confined(false, try_denied), 0);
	if (geteuid() == 0)
		assert_int_equal(in_confined(true, try_denied), 0);
}

/* Of a call that is not denied these arguments are an error of another kind. */
static int try_mounts(void)
{
	return (is_denied(umount2("/no/such/place", 0)) ? 1 : 0) |
	       (is_denied(mount("none", "/no/such/place", "none", 0, NULL)) ? 2 : 0) |
	       (is_denied(syscall(SYS_move_mount, -1, "", -1, "", 0)) ? 4 : 0);
}

static void test_sandbox__who_mounts_may_go_on_doing_so(void **state)
{
	(void)state;
	assert_int_equal(in_confined(false, try_mounts), 7);
	if (geteuid() == 0)
		assert_int_equal(in_confined(true, try_mounts), 0);
}

static int look_at_privileges(void)
{
	const uint64_t given_up = 1ull << CAP_KILL | 1ull << CAP_SETUID | 1ull << CAP_SYS_MODULE |
				  1ull << CAP_NET_ADMIN | 1ull << CAP_SYS_BOOT |
				  1ull << CAP_SYS_RAWIO | 1ull << CAP_BPF | 1ull << CAP_SYS_CHROOT;
	const uint64_t kept = 1ull << CAP_CHOWN | 1ull << CAP_MKNOD | 1ull << CAP_SYS_ADMIN |
			      1ull << CAP_DAC_OVERRIDE;
	const uint64_t before = sandbox_started_with();

	if (status_of("NoNewPrivs:", 10) != 1)
		return 1;
	if ((status_of("CapEff:", 16) | status_of("CapPrm:", 16) | status_of("CapInh:", 16)) &
	    given_up)
		return 2;
	if ((status_of("CapEff:", 16) & kept) != (before & kept))
		return 3;
	return 0;
}

static void test_sandbox__privileges_are_given_up_for_good(void **state)
{
	(void)state;
	assert_int_equal(in_confined(false, look_at_privileges), 0);
}

static int look_at_start(void)
{
	return sandbox_started_with() == UINT64_MAX		    ? 1
	       : status_of("CapEff:", 16) == sandbox_started_with() ? 2
								    : 3;
}

static void test_sandbox__what_it_was_started_with_is_remembered(void **state)
{
	(void)state;
	assert_int_equal(sandbox_started_with(), status_of("CapEff:", 16));
	assert_int_equal(in_confined(false, look_at_start), geteuid() == 0 ? 3 : 2);
}

static void *work(void *arg)
{
	*(bool *)arg = is_denied(unshare(0));
	return NULL;
}

static int try_thread(void)
{
	bool was_denied = false;
	pthread_t t;

	if (pthread_create(&t, NULL, work, &was_denied) != 0)
		return 1;
	pthread_join(t, NULL);
	return was_denied ? 0 : 2;
}

static void test_sandbox__holds_for_threads_that_are_started_later(void **state)
{
	(void)state;
	assert_int_equal(in_confined(false, try_thread), 0);
}

static int confine_again(void)
{
	const uint64_t before = sandbox_started_with(), filters = status_of("Seccomp_filters:", 10);

	sandbox_enter(false);
	return sandbox_started_with() == before && status_of("Seccomp_filters:", 10) == filters ? 0
												: 1;
}

static void test_sandbox__twice_is_once(void **state)
{
	(void)state;
	assert_int_equal(in_confined(false, confine_again), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandbox__calls_that_serving_never_needs_are_denied),
		cmocka_unit_test(test_sandbox__who_mounts_may_go_on_doing_so),
		cmocka_unit_test(test_sandbox__privileges_are_given_up_for_good),
		cmocka_unit_test(test_sandbox__what_it_was_started_with_is_remembered),
		cmocka_unit_test(test_sandbox__holds_for_threads_that_are_started_later),
		cmocka_unit_test(test_sandbox__twice_is_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
