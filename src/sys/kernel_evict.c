// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/kernel_evict.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK 32768

/* Newer than some kernel headers. */
#define NOTIFY_PRUNE 9
struct notify_prune_out {
	uint32_t count;
	uint32_t padding;
	uint64_t spare;
};

struct job {
	int fd;
	pid_t parent;
	const struct kernel_evict_range *ranges;
	const uint64_t *nodes; /* in place of ranges */
	size_t n;
	int done;
};

static int tell(int fd, const struct kernel_evict_range *r)
{
	struct fuse_notify_inval_inode_out what = { .ino = r->node,
						    .off = (int64_t)r->off,
						    .len = (int64_t)r->len };
	struct fuse_out_header head = { .len = sizeof(head) + sizeof(what),
					.error = FUSE_NOTIFY_INVAL_INODE };
	const struct iovec iov[] = { { &head, sizeof(head) }, { &what, sizeof(what) } };

	return writev(fd, iov, 2) < 0 ? -errno : 0;
}

/* Runs on the server's memory, in its stead while it waits: takes no lock and does not allocate. If
 * the server dies, the descriptors may soon be reused, so the child dies too. */
static int drop_pages(void *arg)
{
	struct job *j = arg;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return 1;
	for (size_t i = 0; i < j->n && getppid() == j->parent; i++) {
		int r = tell(j->fd, &j->ranges[i]);

		if (r < 0 && r != -ENOENT)
			break;
		j->done++;
	}
	return 0;
}

static int prune(void *arg)
{
	struct job *j = arg;
	struct notify_prune_out what = { .count = (uint32_t)j->n };
	const size_t len = j->n * sizeof(*j->nodes);
	struct fuse_out_header head = { .len = (uint32_t)(sizeof(head) + sizeof(what) + len),
					.error = NOTIFY_PRUNE };
	const struct iovec iov[] = { { &head, sizeof(head) },
				     { &what, sizeof(what) },
				     { (void *)j->nodes, len } };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return 1;
	if (getppid() == j->parent)
		j->done = writev(j->fd, iov, 3) < 0 ? -errno : (int)j->n;
	return 0;
}

static int in_child(int (*fn)(void *job), struct job *job, uint64_t *ret_cpu_ns)
{
	char *stack = aligned_alloc(64, CHILD_STACK);
	struct rusage usage = { .ru_maxrss = 0 };
	pid_t pid;
	int r;

	*ret_cpu_ns = 0;
	if (!stack)
		return -ENOMEM;
	pid = clone(fn, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES, job);
	r = pid < 0 ? -errno : 0;
	while (pid > 0 && wait4(pid, NULL, __WALL, &usage) < 0 && errno == EINTR)
		;
	free(stack);
	*ret_cpu_ns = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
		      (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
	return r < 0 ? r : job->done;
}

int kernel_evict_ranges(int fuse_fd, const struct kernel_evict_range *ranges, size_t n,
			uint64_t *ret_cpu_ns)
{
	struct job job = { .fd = fuse_fd, .parent = getpid(), .ranges = ranges, .n = n };

	return in_child(drop_pages, &job, ret_cpu_ns);
}

int kernel_evict_nodes(int fuse_fd, const uint64_t *nodes, size_t n)
{
	struct job job = { .fd = fuse_fd, .parent = getpid(), .nodes = nodes, .n = n };
	uint64_t cpu_ns;

	return in_child(prune, &job, &cpu_ns);
}
