/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of one connection: what a client has said so far, bounded and checked, and the answer. */
#pragma once

#include "veneer/roster.h"

struct conn;

enum conn_state {
	CONN_LISTENING,		/* more must come before there is something to do */
	CONN_ASKED,		/* there is: conn_answer, which may take long, on a thread of its own */
	CONN_OVER,
};

/* What a server can tell. */
struct conn_host {
	struct roster *roster;
	int (*stats)(void *arg, char **ret_json);	/* malloc'd text; 0 or -errno */
	struct ledger *ledger;				/* NULL: it cannot be upgraded */
	void *arg;
};

/* Once in a process that is to serve, before it gives anything up: clients have to be what it is now. Without it all are
 * refused. */
void conn_note_starter(void);
/* A service manager is told of this process: what else is in its control group is of the same unit. */
void conn_note_unit(void);
/* fd, which does not block, is taken over, also on failure. A peer that is not the same user with the same privileges,
 * namespaces and root is told so and refused: -EPERM. 0, -ENOMEM. */
int conn_new(int fd, struct conn **ret);
void conn_free(struct conn *c);
int conn_fd(const struct conn *c);
/* Take what has come; never waits. */
enum conn_state conn_receive(struct conn *c);
/* Once something is asked: may the answer take as long as a disk, or as work on one? */
bool conn_takes_long(const struct conn *c);
/* Tell it that n of those that may are at it, and none comes to its end, in place of an answer. */
void conn_refuse_stalled(struct conn *c, unsigned n);
/* Do what was asked and answer. Waits for the client, for a bounded time, and for disks. */
void conn_answer(struct conn *c, const struct conn_host *host);
