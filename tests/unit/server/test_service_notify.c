// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/server/service_notify.h"

#include <sys/socket.h>
#include <sys/un.h>

static void set_address(struct sockaddr_un *at, struct tree_dirs *d)
{
	*at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	assert_true(snprintf(at->sun_path, sizeof(at->sun_path), "%s/notify", d->s.path) <
		    (int)sizeof(at->sun_path));
}

static void test_service_notify__state_comes_to_the_socket_that_is_named(void **state)
{
	int fd, manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at;
	char text[32] = "";

	set_address(&at, *state);
	assert_int_equal(bind(manager, (struct sockaddr *)&at, sizeof(at)), 0);
	setenv("NOTIFY_SOCKET", at.sun_path, 1);
	fd = service_notify_open();
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	service_notify_send(fd, "READY=1");
	assert_int_equal(recv(manager, text, sizeof(text), MSG_DONTWAIT), 7);
	assert_string_equal(text, "READY=1");
	/* It outlives the name, and the manager. */
	unlink(at.sun_path);
	service_notify_send(fd, "STOPPING=1");
	assert_int_equal(recv(manager, text, sizeof(text), MSG_DONTWAIT), 10);
	close(manager);
	service_notify_send(fd, "STOPPING=1");
	service_notify_send(-1, "STOPPING=1");
	close(fd);
}

static void test_service_notify__abstract_address(void **state)
{
	int fd, manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(sa_family_t); /* the kernel chooses a name */
	char name[sizeof(at.sun_path) + 1], byte;

	(void)state;
	assert_int_equal(bind(manager, (struct sockaddr *)&at, len), 0);
	len = sizeof(at);
	assert_int_equal(getsockname(manager, (struct sockaddr *)&at, &len), 0);
	assert_true(len > sizeof(sa_family_t) + 1);
	snprintf(name, sizeof(name), "@%.*s", (int)(len - sizeof(sa_family_t) - 1),
		 at.sun_path + 1);
	setenv("NOTIFY_SOCKET", name, 1);
	fd = service_notify_open();
	assert_true(fd >= 0);
	service_notify_send(fd, "x");
	assert_int_equal(recv(manager, &byte, 1, MSG_DONTWAIT), 1);
	close(fd);
	close(manager);
}

static void test_service_notify__address_that_is_none_gives_no_way(void **state)
{
	char too_long[200];

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(service_notify_open(), -1);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(service_notify_open(), -1);
	setenv("NOTIFY_SOCKET", "@", 1);
	assert_int_equal(service_notify_open(), -1);
	setenv("NOTIFY_SOCKET", "relative", 1);
	assert_int_equal(service_notify_open(), -1);
	setenv("NOTIFY_SOCKET", "/nobody/listens/here", 1);
	assert_int_equal(service_notify_open(), -1);
	memset(too_long, '/', sizeof(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	setenv("NOTIFY_SOCKET", too_long, 1);
	assert_int_equal(service_notify_open(), -1);
}

static void set_listen(const char *pid, const char *n)
{
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", n, 1);
}

static void test_service_notify__socket_of_another_process_is_not_taken(void **state)
{
	char pid[16];
	int saved;

	(void)state;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	assert_int_equal(service_notify_listen_fd(), -1);
	set_listen("1", "1");
	assert_int_equal(service_notify_listen_fd(), -1);
	set_listen(pid, "0");
	assert_int_equal(service_notify_listen_fd(), -1);
	set_listen(pid, "2");
	assert_int_equal(service_notify_listen_fd(), -1);
	set_listen(pid, "1");
	saved = fcntl(3, F_DUPFD_CLOEXEC, 10);
	assert_true(dup2(STDERR_FILENO, 3) == 3);
	assert_int_equal(service_notify_listen_fd(), 3);
	assert_int_equal(fcntl(3, F_GETFD), FD_CLOEXEC);
	/* There is none by that number. */
	close(3);
	assert_int_equal(service_notify_listen_fd(), -1);
	if (saved >= 0) {
		dup3(saved, 3, O_CLOEXEC);
		close(saved);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_service_notify__state_comes_to_the_socket_that_is_named),
		row(test_service_notify__abstract_address),
		row(test_service_notify__address_that_is_none_gives_no_way),
		row(test_service_notify__socket_of_another_process_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
