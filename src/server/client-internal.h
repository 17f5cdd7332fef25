/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as a client exchanges them. */
#pragma once

#include "veneer/sys/sock.h"
#include "wire.h"

#define CLIENT_WAIT_MS 30000
#define CLIENT_ANY     WIRE_TYPES

struct client_packet {
	struct wire_message m; /* points into bytes */
	struct sock_sender sender; /* where it was asked for; its descriptor is the caller's */
	int fd; /* the one descriptor that came with it; -1: none */
	uint8_t bytes[WIRE_MESSAGE_MAX];
};

/* 0; -EPIPE: the server has hung up, and may have said why; other -errno. */
int client_say(int fd, const struct wire_message *m, const int *fds, size_t n_fds);
/* Wait for a message of this type, or of any. -1: for ever. -EREMOTEIO: the server's own sentence
 * is in err; -EPIPE: it has hung up; -EPROTO: it is of another version; other -errno. err is
 * written but for 0. With: p->fd is the caller's, also on failure; else it is closed. */
int client_hear_with(int fd, int timeout_ms, enum wire_type type, struct client_packet *p,
		     char *err, size_t err_size);
int client_hear(int fd, int timeout_ms, enum wire_type type, struct client_packet *p, char *err,
		size_t err_size);
