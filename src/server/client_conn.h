/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of one connection: the messages of a client so far, bounded and checked, and the
 * answer. */
#pragma once

#include "veneer/server/mount_table.h"

struct client_conn;

enum client_conn_state {
	CLIENT_CONN_LISTENING, /* the request is not complete yet */
	CLIENT_CONN_ASKED, /* The request is complete: call client_conn_answer on a thread of its
			      own, as it may take long. */
	CLIENT_CONN_OVER,
};

/* Functions by which a server answers clients. */
struct client_conn_host {
	struct mount_table *mount_table;
	int (*stats)(void *arg, char **ret_json); /* malloc'd text; 0 or -errno */
	struct supervisor_state *supervisor_state; /* NULL: it cannot be upgraded */
	void *arg;
};

/* Remember the credentials and namespaces of this process, which clients must match. Call it once
 * in a process that is to serve, before it gives any of them up. Without it every client is
 * refused. */
void client_conn_note_starter(void);
/* A service manager watches this process: other processes in its control group are of the same
 * unit. */
void client_conn_note_unit(void);
/* fd must be non-blocking, and is taken over, also on failure. A peer must be the same user with
 * the same privileges, namespaces and root; any other is told so and refused: -EPERM. 0,
 * -ENOMEM. */
int client_conn_new(int fd, struct client_conn **ret);
void client_conn_free(struct client_conn *c);
int client_conn_fd(const struct client_conn *c);
/* Take the messages that have come; never waits. */
enum client_conn_state client_conn_receive(struct client_conn *c);
/* For a complete request: may the answer wait for a disk, or for long work on one? */
bool client_conn_takes_long(const struct client_conn *c);
/* Answer with an error: n requests that may take long are running, and none comes to its end. */
void client_conn_refuse_stalled(struct client_conn *c, unsigned n);
/* Do the request and answer. Waits for the client, for a bounded time, and for disks. */
void client_conn_answer(struct client_conn *c, const struct client_conn_host *host);
