/* SPDX-License-Identifier: Apache-2.0 */
/* One process that serves the mounts of a user: takes connections, hands each request to a thread,
 * and leaves when it is told to or has nothing to do. */
#pragma once

#include "veneer/server/listen_socket.h"
#include "veneer/server/mount_table.h"
#include "veneer/server/rundir.h"

struct server_config {
	const struct rundir *place; /* where the socket is */
	int listen_fd; /* taken over */
	bool owns_socket; /* its name goes when the server does */
	bool keeps_output; /* of its starter: messages go to standard error */
	bool has_log_file; /* standard error is one, and no starter's */
	bool takes_over; /* the mounts of the server at the other end of from_fd; listen_fd and
			    owns_socket are its, and the process at the end of word_fd hears how it
			    went (upgrade.h) */
	int from_fd, word_fd; /* taken over */
	bool is_alone; /* nobody starts another server if this one dies */
	unsigned idle_s; /* leave after so long without a mount */
	int cpu_latency; /* of mounts that leave it open (sys/cpu_latency.h) */
	int (*stats)(struct mount_table *mounts, char **ret_json); /* NULL: none */
	int (*metrics)(struct mount_table *mounts, char **ret_text); /* for who asks at: */
	struct listen_socket
		endpoint; /* found, and listening unless takes_over; LISTEN_SOCKET_NONE: nowhere */
};

/* Serve until there is no reason to. SIGTERM, SIGINT, SIGHUP: take no mounts any more, and leave
 * when the last is gone; a second one ends them. SIGUSR2: likewise, and however often. SIGUSR1:
 * print counters. The process belongs to the server: its exit code. */
int server_run(const struct server_config *c);
