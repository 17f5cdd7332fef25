// SPDX-License-Identifier: Apache-2.0
#include "support/peer.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/sock.h"

#include <sys/socket.h>

void peer_end_open(struct peer_end *p, int *ret_server)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	p->fd = ends[0];
	assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	*ret_server = ends[1];
}

void peer_end_close(struct peer_end *p)
{
	closep(&p->fd);
}

void peer_end_say(struct peer_end *p, const struct wire_message *m, const int *fds, size_t n_fds)
{
	_cleanup_(buf_release) struct buf b = { 0 };

	assert_int_equal(wire_encode(m, &b), 0);
	assert_int_equal(sock_send(p->fd, b.data, b.len, fds, n_fds, 1000), 0);
}

void peer_end_say_type(struct peer_end *p, enum wire_type type)
{
	peer_end_say(p, &(struct wire_message){ .type = type }, NULL, 0);
}

void peer_end_say_text(struct peer_end *p, enum wire_type type, const char *text)
{
	peer_end_say(p,
		     &(struct wire_message){ .type = type, .text = text, .text_len = strlen(text) },
		     NULL, 0);
}

void peer_end_say_bytes(struct peer_end *p, const void *bytes, size_t len)
{
	assert_int_equal(send(p->fd, bytes, len, 0), len);
}

void peer_end_expect(struct peer_end *p, enum wire_type type)
{
	ssize_t n = recv(p->fd, p->bytes, sizeof(p->bytes), MSG_DONTWAIT);

	if (n <= 0)
		fail_msg("no message where one of type %d is due", (int)type);
	assert_int_equal(wire_decode(p->bytes, (size_t)n, &p->m), 0);
	if (p->m.type == WIRE_ERROR && type != WIRE_ERROR)
		fail_msg("%.*s", (int)p->m.text_len, p->m.text);
	assert_int_equal(p->m.type, type);
}

void peer_end_expect_error(struct peer_end *p, const char *part)
{
	char text[WIRE_PAYLOAD_MAX + 1];

	peer_end_expect(p, WIRE_ERROR);
	snprintf(text, sizeof(text), "%.*s", (int)p->m.text_len, p->m.text);
	if (!strstr(text, part))
		fail_msg("\"%s\" lacks \"%s\"", text, part);
}

void peer_end_expect_nothing(struct peer_end *p)
{
	uint8_t byte;

	assert_true(recv(p->fd, &byte, 1, MSG_DONTWAIT) <= 0);
}
