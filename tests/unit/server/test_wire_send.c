// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/wire_send.h"

#include <pthread.h>
#include <sys/socket.h>

#define MANY 64

static int ends[2];

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
}

static int teardown(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static void test_wire_send__message_comes_as_it_was_sent(void **state)
{
	uint8_t bytes[WIRE_MESSAGE_MAX];
	struct wire_message m;
	ssize_t n;

	(void)state;
	assert_int_equal(wire_send_text(ends[0], WIRE_ERROR, "a sentence", 10), 0);
	n = recv(ends[1], bytes, sizeof(bytes), 0);
	assert_true(n > 0);
	assert_int_equal(wire_decode(bytes, (size_t)n, &m), 0);
	assert_int_equal(m.type, WIRE_ERROR);
	assert_int_equal(m.count, 1);
	assert_int_equal(m.text_len, 10);
	assert_memory_equal(m.text, "a sentence", 10);
	assert_int_equal(wire_send(ends[0], &(struct wire_message){ .type = WIRE_OK }), 0);
	n = recv(ends[1], bytes, sizeof(bytes), 0);
	assert_int_equal(wire_decode(bytes, (size_t)n, &m), 0);
	assert_int_equal(m.type, WIRE_OK);
}

static void test_wire_send__text_that_no_message_holds_is_not_sent(void **state)
{
	char *text = calloc(1, WIRE_PAYLOAD_MAX + 1);
	char byte;

	(void)state;
	assert_non_null(text);
	assert_int_equal(wire_send_text(ends[0], WIRE_TEXT, text, WIRE_PAYLOAD_MAX + 1), -EMSGSIZE);
	assert_int_equal(recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
	free(text);
}

static void test_wire_send__client_that_is_gone_is_an_error_and_no_signal(void **state)
{
	(void)state;
	shutdown(ends[1], SHUT_RDWR);
	assert_int_equal(wire_send_text(ends[0], WIRE_TEXT, "x", 1), -EPIPE);
	assert_int_equal(wire_send_text(-1, WIRE_TEXT, "x", 1), -EBADF);
}

static void *take_all(void *arg)
{
	static uint8_t bytes[WIRE_MESSAGE_MAX];
	const int fd = *(const int *)arg;

	fcntl(fd, F_SETFL, 0);
	for (int i = 0; i < MANY; i++)
		if (recv(fd, bytes, sizeof(bytes), 0) <= 0)
			return NULL;
	return arg;
}

/* The socket holds a few of them. */
static void test_wire_send__client_that_is_slow_is_waited_for(void **state)
{
	char *text = calloc(1, WIRE_PAYLOAD_MAX / 2);
	pthread_t thread;
	void *result;

	(void)state;
	assert_non_null(text);
	assert_int_equal(pthread_create(&thread, NULL, take_all, &ends[1]), 0);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(wire_send_text(ends[0], WIRE_TEXT, text, WIRE_PAYLOAD_MAX / 2), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, &ends[1]);
	free(text);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_wire_send__message_comes_as_it_was_sent),
		row(test_wire_send__text_that_no_message_holds_is_not_sent),
		row(test_wire_send__client_that_is_gone_is_an_error_and_no_signal),
		row(test_wire_send__client_that_is_slow_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
