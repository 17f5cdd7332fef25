// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/kernel_evict.h"

#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct message {
	struct fuse_out_header head;
	struct fuse_notify_inval_inode_out what;
};

/* Packets keep what one write wrote together, as /dev/fuse does. */
static void make_pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

static void test_kernel_evict__one_notification_for_each_range(void **state)
{
	const struct kernel_evict_range ranges[] = { { 7, 524288, 524288 }, { 8, 0, 4096 } };
	struct message m;
	uint64_t cpu_ns;
	int fds[2];

	(void)state;
	make_pair(fds);
	assert_int_equal(kernel_evict_ranges(fds[0], ranges, 2, &cpu_ns), 2);
	for (int k = 0; k < 2; k++) {
		assert_int_equal(recv(fds[1], &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
		assert_int_equal(m.head.len, sizeof(m));
		assert_int_equal(m.head.unique, 0);
		assert_int_equal(m.head.error, FUSE_NOTIFY_INVAL_INODE);
		assert_int_equal(m.what.ino, ranges[k].node);
		assert_int_equal(m.what.off, ranges[k].off);
		assert_int_equal(m.what.len, ranges[k].len);
	}
	assert_int_equal(recv(fds[1], &m, sizeof(m), MSG_DONTWAIT), -1);
	close(fds[0]), close(fds[1]);
	/* nothing is left of the child */
	assert_int_equal(waitpid(-1, NULL, __WALL), -1);
	assert_int_equal(errno, ECHILD);
}

static void test_kernel_evict__a_mount_that_is_gone_ends_it(void **state)
{
	const struct kernel_evict_range ranges[] = { { 7, 0, 4096 }, { 8, 0, 4096 } };
	uint64_t cpu_ns;
	int fds[2];

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	make_pair(fds);
	close(fds[1]);
	assert_int_equal(kernel_evict_ranges(fds[0], ranges, 2, &cpu_ns), 0);
	close(fds[0]);
}

static void test_kernel_evict__nodes_go_in_one_notification(void **state)
{
	const uint64_t nodes[] = { 7, 300, 8 };
	struct {
		struct fuse_out_header head;
		uint32_t count, padding;
		uint64_t spare, nodes[3];
	} m;
	int fds[2];

	(void)state;
	make_pair(fds);
	assert_int_equal(kernel_evict_nodes(fds[0], nodes, 3), 3);
	assert_int_equal(recv(fds[1], &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_int_equal(m.head.len, sizeof(m));
	assert_int_equal(m.head.error, 9);
	assert_int_equal(m.count, 3);
	assert_memory_equal(m.nodes, nodes, sizeof(nodes));
	close(fds[1]);
	assert_int_equal(kernel_evict_nodes(fds[0], nodes, 3), -EPIPE);
	close(fds[0]);
}

/* A server that is killed while the kernel holds up the child is dead at once, all of it, and the
 * child follows when it can. */
static void test_kernel_evict__a_killed_server_does_not_wait_for_the_kernel(void **state)
{
	const struct kernel_evict_range range = { 7, 0, 4096 };
	char byte;
	int fds[2], ready[2], status;
	pid_t pid;

	(void)state;
	make_pair(fds);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct message m = { .head = { .len = 0 } };
		uint64_t cpu_ns;

		/* Full: the next write waits, for as long as the other end is not read. */
		while (send(fds[0], &m, sizeof(m), MSG_DONTWAIT) > 0)
			;
		(void)!write(ready[1], "r", 1);
		kernel_evict_ranges(fds[0], &range, 1, &cpu_ns);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	/* The wait for the child's child, which shares its memory, is not an ordinary sleep. */
	wait_until(wait_thread_state(pid) == 'D');
	assert_int_equal(wait_thread_state(pid), 'D');
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	close(ready[0]), close(fds[0]), close(fds[1]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_evict__one_notification_for_each_range),
		cmocka_unit_test(test_kernel_evict__a_mount_that_is_gone_ends_it),
		cmocka_unit_test(test_kernel_evict__nodes_go_in_one_notification),
		cmocka_unit_test(test_kernel_evict__a_killed_server_does_not_wait_for_the_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
