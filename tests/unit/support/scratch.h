/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of a test's own, and its removal; system calls that fail; ways to run this program
 * once more. */
#pragma once

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

struct scratch {
	char path[PATH_MAX];
	int fd;
};

static inline int scratch_make(struct scratch *s, const char *parent)
{
	int n = snprintf(s->path, sizeof(s->path), "%s/veneer-test-XXXXXX", parent);

	if (n < 0 || (size_t)n >= sizeof(s->path) || !mkdtemp(s->path))
		return -1;
	s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->fd < 0 ? -1 : 0;
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	remove(path);
	return 0;
}

static inline void scratch_leave(struct scratch *s)
{
	nftw(s->path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	close(s->fd);
}

/* Below $TMPDIR or /var/tmp (/tmp is a tmpfs in Debian 13, without extents), or below the current
 * directory where that keeps no user.* attributes. */
static inline int scratch_enter(struct scratch *s)
{
	const char *tmp = getenv("TMPDIR");

	if (scratch_make(s, tmp ? tmp : "/var/tmp") == 0) {
		if (fsetxattr(s->fd, "user.veneer-test", "y", 1, 0) == 0 &&
		    fremovexattr(s->fd, "user.veneer-test") == 0)
			return 0;
		scratch_leave(s);
	}
	return scratch_make(s, ".");
}

/* From now on this system call fails so, as an old kernel or a container's filter has it. */
static inline int scratch_deny(int syscall_nr, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)syscall_nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

struct scratch_denied {
	int syscall_nr, error;
	int (*run)(void *arg);
	void *arg;
	int r;
};

static inline void *scratch_denied_thread(void *arg)
{
	struct scratch_denied *d = arg;

	d->r = scratch_deny(d->syscall_nr, d->error) < 0 ? -ENOSYS : d->run(d->arg);
	return NULL;
}

/* Runs RUN(ARG) in a thread of its own, in which this system call fails so: what RUN returns. A
 * child of fork(2) would have only one of the threads of the process, and any lock that another of
 * them held. -ENOSYS: there are no filters of calls, as in an emulator. */
static inline int scratch_run_denied(int syscall_nr, int error, int (*run)(void *arg), void *arg)
{
	struct scratch_denied d = { syscall_nr, error, run, arg, -ENOSYS };
	pthread_t thread;

	if (pthread_create(&thread, NULL, scratch_denied_thread, &d) == 0)
		pthread_join(thread, NULL);
	return d.r;
}

/* From now on permissions bind this thread, as they bind an ordinary user. */
static inline int scratch_be_bound(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &head, caps) < 0)
		return -1;
	caps[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
	return (int)syscall(SYS_capset, &head, caps);
}

/* Run this test program again with one argument, where nothing is decided yet that is decided
 * once per process. Its wait status. */
static inline int scratch_run_self(const char *arg)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl("/proc/self/exe", "again", arg, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	return status;
}
