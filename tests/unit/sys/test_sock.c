// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/sock.h"

#include <dirent.h>
#include <sys/stat.h>

struct pair {
	int listener, a, b; /* a: the client's end; b: the server's, which does not block */
};

static void connect_pair(struct tree_dirs *d, struct pair *p)
{
	assert_int_equal(sock_listen(d->s.fd, "s", &p->listener), 0);
	assert_int_equal(sock_connect(d->s.fd, "s", 1000, &p->a), 0);
	assert_int_equal(sock_accept(p->listener, &p->b), 0);
}

static void close_pair(struct pair *p)
{
	close(p->listener);
	closep(&p->a);
	close(p->b);
}

static size_t open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void test_sock__descriptors_arrive_and_close_on_exec(void **state)
{
	int fds[SOCK_FDS_MAX], got[SOCK_FDS_MAX];
	struct stat st, want;
	char text[16];
	struct pair p;
	size_t n;

	connect_pair(*state, &p);
	fds[0] = open("/", O_PATH | O_CLOEXEC);
	for (unsigned i = 1; i < SOCK_FDS_MAX; i++)
		fds[i] = fds[0];
	assert_int_equal(sock_send(p.a, "hi", 2, fds, SOCK_FDS_MAX, 1000), 0);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 2);
	assert_int_equal(n, SOCK_FDS_MAX);
	assert_int_equal(fstat(got[SOCK_FDS_MAX - 1], &st), 0);
	assert_int_equal(stat("/", &want), 0);
	assert_int_equal(st.st_ino, want.st_ino);
	assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
	sock_close_fds(got, n);
	close(fds[0]);
	close_pair(&p);
}

static void test_sock__messages_stay_apart_and_the_end_is_told(void **state)
{
	int got[SOCK_FDS_MAX];
	char text[16];
	struct pair p;
	size_t n;

	connect_pair(*state, &p);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), -EAGAIN);
	assert_int_equal(sock_wait(p.b, 1), -ETIMEDOUT);
	assert_int_equal(sock_send(p.a, "one", 3, NULL, 0, 1000), 0);
	assert_int_equal(sock_send(p.a, "three", 5, NULL, 0, 1000), 0);
	assert_int_equal(sock_wait(p.b, 1000), 0);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 3);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 5);
	closep(&p.a);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 0);
	assert_int_equal(sock_send(p.b, "x", 1, NULL, 0, 1000), -EPIPE);
	close_pair(&p);
}

/* A refused message leaves no descriptor behind. */
static void test_sock__descriptors_of_refused_messages_are_closed(void **state)
{
	int root = open("/", O_PATH | O_CLOEXEC), got[SOCK_FDS_MAX];
	struct pair p;
	size_t n, before;
	char text[4];

	connect_pair(*state, &p);
	before = open_fds();
	assert_int_equal(sock_send(p.a, "too long", 8, &root, 1, 1000), 0);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), -EMSGSIZE);
	/* An empty message is taken for the end. */
	assert_int_equal(sock_send(p.a, "", 0, &root, 1, 1000), 0);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(open_fds(), before);
	close(root);
	close_pair(&p);
}

static void test_sock__last_words_are_heard(void **state)
{
	int got[SOCK_FDS_MAX];
	char text[16];
	struct pair p;
	size_t n;

	connect_pair(*state, &p);
	assert_int_equal(sock_send(p.b, "never read", 10, NULL, 0, 1000), 0);
	assert_int_equal(sock_send(p.a, "bye", 3, NULL, 0, 1000), 0);
	closep(&p.a);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 3);
	assert_int_equal(sock_recv(p.b, text, sizeof(text), got, &n), 0);
	close_pair(&p);
}

static void test_sock__full_queue_is_waited_for_so_long_and_no_longer(void **state)
{
	static const char block[4096];
	struct pair p;
	int r = 0;

	connect_pair(*state, &p);
	for (int i = 0; r == 0 && i < 100000; i++)
		r = sock_send(p.a, block, sizeof(block), NULL, 0, 1);
	assert_int_equal(r, -ETIMEDOUT);
	close_pair(&p);
}

static void test_sock__peer_is_known_and_absence_is_told(void **state)
{
	struct tree_dirs *d = *state;
	struct ucred peer;
	struct pair p;
	struct stat st;
	int fd;

	assert_int_equal(sock_connect(d->s.fd, "s", 100, &fd), -ENOENT);
	connect_pair(d, &p);
	assert_int_equal(fstatat(d->s.fd, "s", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(sock_peer(p.b, &peer), 0);
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, geteuid());
	assert_true(sock_is_listening(p.listener));
	assert_false(sock_is_listening(p.a));
	assert_int_equal(sock_accept(p.listener, &fd), -EAGAIN);
	close_pair(&p);
	assert_int_equal(sock_connect(d->s.fd, "s", 100, &fd), -ECONNREFUSED);
	assert_int_equal(sock_listen(d->s.fd, "s", &fd), -EADDRINUSE);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sock__descriptors_arrive_and_close_on_exec),
		row(test_sock__messages_stay_apart_and_the_end_is_told),
		row(test_sock__descriptors_of_refused_messages_are_closed),
		row(test_sock__last_words_are_heard),
		row(test_sock__full_queue_is_waited_for_so_long_and_no_longer),
		row(test_sock__peer_is_known_and_absence_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
