/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the protocol: send one message, receive one message. */
#pragma once

#include "veneer/sys/sock.h"
#include "wire.h"

#define CLIENT_WAIT_MS 30000
#define CLIENT_ANY     WIRE_TYPES

struct client_packet {
	struct wire_message m; /* points into bytes */
	struct sock_sender sender; /* of m, if known; the caller closes its pidfd */
	int fd; /* the descriptor that came with the message; -1: none, or more than one */
	uint8_t bytes[WIRE_MESSAGE_MAX];
};

/* Send a message. 0; -EPIPE: the server has hung up, and may have sent the reason before; other
 * -errno. */
int client_say(int fd, const struct wire_message *m, const int *fds, size_t n_fds);
/* Wait for a message of this type, or of any type (CLIENT_ANY). timeout_ms -1: no limit.
 * -EREMOTEIO: the server sent an error, whose text is in err; -EPIPE: the server has hung up;
 * -EPROTO: the server speaks another version; other -errno. err is written unless the result is 0.
 * client_hear_with leaves p->fd to the caller, also on failure; client_hear closes it. */
int client_hear_with(int fd, int timeout_ms, enum wire_type type, struct client_packet *p,
		     char *err, size_t err_size);
int client_hear(int fd, int timeout_ms, enum wire_type type, struct client_packet *p, char *err,
		size_t err_size);
