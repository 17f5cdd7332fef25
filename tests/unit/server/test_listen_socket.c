// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/server/listen_socket.h"
#include "veneer/sys/sock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

static void find(struct tree_dirs *d, const char *name, struct listen_socket *ret)
{
	char where[64], err[256];

	snprintf(where, sizeof(where), "unix:/proc/self/fd/%d/%s", d->s.fd, name);
	assert_int_equal(listen_socket_find(where, ret, err, sizeof(err)), 0);
	assert_int_equal(ret->fd, -1);
}

static void test_listen_socket__a_socket_is_its_owners_and_goes(void **state)
{
	struct tree_dirs *d = *state;
	struct listen_socket e, other;
	struct stat st;
	int fd;

	find(d, "m", &e);
	assert_int_equal(listen_socket_listen(&e), 0);
	assert_int_equal(fstatat(d->s.fd, "m", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	assert_int_equal(sock_connect_stream(d->s.fd, "m", 1000, &fd), 0);
	close(fd);
	find(d, "m", &other);
	assert_int_equal(listen_socket_listen(&other), -EADDRINUSE);
	listen_socket_close(&other);
	listen_socket_close(&e);
	assert_int_equal(fstatat(d->s.fd, "m", &st, 0), -1);
}

static void test_listen_socket__in_place_of_one_that_nobody_listens_at(void **state)
{
	struct tree_dirs *d = *state;
	struct listen_socket dead, e;
	struct stat st;

	find(d, "m", &dead);
	assert_int_equal(listen_socket_listen(&dead), 0);
	closep(&dead.fd);
	find(d, "m", &e);
	assert_int_equal(listen_socket_listen(&e), 0);
	/* A previous listener takes nothing away from the next. */
	dead.fd = dup(e.fd);
	dead.ino = e.ino + 1;
	listen_socket_close(&dead);
	assert_int_equal(fstatat(d->s.fd, "m", &st, 0), 0);
	listen_socket_close(&e);
}

static void test_listen_socket__what_is_no_socket_stays(void **state)
{
	struct tree_dirs *d = *state;
	struct listen_socket e;
	struct stat st;

	close(openat(d->s.fd, "m", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	find(d, "m", &e);
	assert_int_equal(listen_socket_listen(&e), -EADDRINUSE);
	listen_socket_close(&e);
	assert_int_equal(fstatat(d->s.fd, "m", &st, 0), 0);
}

static void test_listen_socket__addresses(void **state)
{
	static const char *const wrong[] = {
		"",
		"9100",
		":9100",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:http",
		"localhost:9100",
		"::1:9100",
		"[]:1",
		"unix:",
		"unix:/",
		"unix:/nowhere/that/is/a",
		"127.0.0.1:70000",
		"unix:..",
	};
	struct listen_socket e;
	char err[256];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		*err = '\0';
		assert_true(listen_socket_find(wrong[i], &e, err, sizeof(err)) < 0);
		assert_true(*err);
		listen_socket_close(&e);
	}
	assert_int_equal(listen_socket_find("127.0.0.1:9100", &e, err, sizeof(err)), 0);
	assert_int_equal(((struct sockaddr_in *)&e.at)->sin_port, htons(9100));
	assert_int_equal(((struct sockaddr_in *)&e.at)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_int_equal(listen_socket_find("[::1]:9100", &e, err, sizeof(err)), 0);
	assert_int_equal(e.at.ss_family, AF_INET6);
	assert_int_equal(listen_socket_find("127.0.0.1:0", &e, err, sizeof(err)), 0);
	assert_int_equal(listen_socket_listen(&e), 0);
	listen_socket_close(&e);
	assert_int_equal(e.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_listen_socket__a_socket_is_its_owners_and_goes,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_listen_socket__in_place_of_one_that_nobody_listens_at, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_listen_socket__what_is_no_socket_stays,
						tree_setup, tree_teardown),
		cmocka_unit_test(test_listen_socket__addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
