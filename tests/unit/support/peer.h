/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the server, which sends and reads messages over a socket of this process. Everything
 * asserts. */
#pragma once

#include "support/tree.h"

#include "server/wire.h"

struct peer_end {
	int fd; /* the client's */
	uint8_t bytes[WIRE_MESSAGE_MAX]; /* of the last message, into which m points */
	struct wire_message m;
};

/* *ret_server: the other end, which does not block; the caller's. */
void peer_end_open(struct peer_end *p, int *ret_server);
void peer_end_close(struct peer_end *p);
void peer_end_say(struct peer_end *p, const struct wire_message *m, const int *fds, size_t n_fds);
void peer_end_say_type(struct peer_end *p, enum wire_type type);
void peer_end_say_text(struct peer_end *p, enum wire_type type, const char *text);
void peer_end_say_bytes(struct peer_end *p, const void *bytes, size_t len);
/* The next message must be there already, and of this type. */
void peer_end_expect(struct peer_end *p, enum wire_type type);
/* Likewise an ERROR whose sentence has this in it. */
void peer_end_expect_error(struct peer_end *p, const char *part);
/* Nothing has come. */
void peer_end_expect_nothing(struct peer_end *p);
