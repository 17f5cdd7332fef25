/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of one connection: what a client has said so far, bounded and checked, and the
 * answer. */
#pragma once

#include "veneer/server/mount_table.h"

struct client_conn;

enum client_conn_state {
	CLIENT_CONN_LISTENING, /* more must come before there is something to do */
	CLIENT_CONN_ASKED, /* there is: client_conn_answer, which may take long, on a thread of its
			      own */
	CLIENT_CONN_OVER,
};

/* Functions by which a server answers clients. */
struct client_conn_host {
	struct mount_table *mount_table;
	int (*stats)(void *arg, char **ret_json); /* malloc'd text; 0 or -errno */
	struct supervisor_state *supervisor_state; /* NULL: it cannot be upgraded */
	void *arg;
};

/* Once in a process that is to serve, before it gives anything up: clients have to be what it is
 * now. Without it all are refused. */
void client_conn_note_starter(void);
/* A service manager is told of this process: what else is in its control group is of the same
 * unit. */
void client_conn_note_unit(void);
/* fd, which does not block, is taken over, also on failure. A peer that is not the same user with
 * the same privileges, namespaces and root is told so and refused: -EPERM. 0, -ENOMEM. */
int client_conn_new(int fd, struct client_conn **ret);
void client_conn_free(struct client_conn *c);
int client_conn_fd(const struct client_conn *c);
/* Take what has come; never waits. */
enum client_conn_state client_conn_receive(struct client_conn *c);
/* Once something is asked: may the answer take as long as a disk, or as work on one? */
bool client_conn_takes_long(const struct client_conn *c);
/* Tell it that n of those that may are at it, and none comes to its end, in place of an answer. */
void client_conn_refuse_stalled(struct client_conn *c, unsigned n);
/* Do what was asked and answer. Waits for the client, for a bounded time, and for disks. */
void client_conn_answer(struct client_conn *c, const struct client_conn_host *host);
