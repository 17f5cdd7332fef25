// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/peer.h"
#include "veneer/sys/sock.h"

#include <sched.h>
#include <string.h>
#include <sys/wait.h>

/* A process that has connected, and ends when told. */
struct client {
	pid_t pid;
	int listener, fd, tell;
};

static void start_client(struct tree_dirs *d, struct client *c, int flags)
{
	int ends[2];
	char word;

	assert_int_equal(sock_listen(d->s.fd, "s", &c->listener), 0);
	assert_int_equal(pipe(ends), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		int fd;

		close(ends[1]);
		if ((flags && unshare(flags) < 0) || sock_connect(d->s.fd, "s", 1000, &fd) < 0)
			_exit(1);
		(void)!read(ends[0], &word, 1);
		_exit(0);
	}
	close(ends[0]);
	c->tell = ends[1];
	assert_int_equal(sock_wait(c->listener, 10000), 0);
	assert_int_equal(sock_accept(c->listener, &c->fd), 0);
}

static void end_client(struct client *c)
{
	closep(&c->tell);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
}

static void close_client(struct tree_dirs *d, struct client *c)
{
	close(c->fd);
	close(c->listener);
	unlinkat(d->s.fd, "s", 0);
}

static void test_peer__is_what_it_is_until_it_ends(void **state)
{
	struct tree_dirs *d = *state;

	for (int is_old = 0; is_old < 2; is_old++) {
		struct peer_standing theirs, ours;
		struct client c;
		struct peer p;

		if (is_old)
			setenv("VENEER_NO_PEERPIDFD", "1", 1);
		start_client(d, &c, 0);
		assert_int_equal(peer_hold(c.fd, &p), 0);
		assert_int_equal(p.pid, c.pid);
		assert_int_equal(p.uid, geteuid());
		assert_true(!is_old || !p.is_connector);
		assert_int_equal(peer_standing(&p, &theirs), 0);
		assert_int_equal(peer_standing_self(&ours), 0);
		assert_memory_equal(&theirs, &ours, sizeof(ours));
		end_client(&c);
		assert_int_equal(peer_standing(&p, &theirs), -ESRCH);
		peer_release(&p);
		assert_int_equal(peer_hold(c.fd, &p) < 0 ? -ESRCH : peer_standing(&p, &theirs),
				 -ESRCH);
		close_client(d, &c);
	}
	unsetenv("VENEER_NO_PEERPIDFD");
}

static void test_peer__all_capabilities_of_another_user_namespace_are_seen_as_that(void **state)
{
	struct peer_standing theirs, ours;
	struct tree_dirs *d = *state;
	struct client c;
	struct peer p;
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) < 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		skip();
	start_client(d, &c, CLONE_NEWUSER);
	assert_int_equal(peer_hold(c.fd, &p), 0);
	assert_int_equal(peer_standing(&p, &theirs), 0);
	assert_int_equal(peer_standing_self(&ours), 0);
	assert_true(theirs.effective != 0);
	assert_false(peer_id_is(&theirs.user_ns, &ours.user_ns));
	assert_true(peer_id_is(&theirs.pid_ns, &ours.pid_ns));
	assert_true(peer_id_is(&theirs.root, &ours.root));
	end_client(&c);
	peer_release(&p);
	close_client(d, &c);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_peer__is_what_it_is_until_it_ends),
		row(test_peer__all_capabilities_of_another_user_namespace_are_seen_as_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
