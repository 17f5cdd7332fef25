/* SPDX-License-Identifier: Apache-2.0 */
/* One process that serves the mounts of a user. It accepts connections, hands each request to a
 * thread, and exits when it is told to or has nothing to do. */
#pragma once

#include "veneer/server/listen_socket.h"
#include "veneer/server/mount_table.h"
#include "veneer/server/rundir.h"

struct server_config {
	const struct rundir *place; /* where the socket is */
	int listen_fd; /* taken over */
	bool owns_socket; /* remove the socket at the end */
	bool keeps_output; /* messages go to standard error, as the starter's do */
	bool has_log_file; /* standard error is a log file and not the starter's */
	bool takes_over; /* Take over the mounts of the server at the other end of from_fd.
			    listen_fd and owns_socket come from it, and the process at the end of
			    word_fd gets the result (upgrade.h). */
	int from_fd, word_fd; /* taken over */
	bool is_alone; /* no supervisor starts another server if this one dies */
	unsigned idle_s; /* exit after this time without a mount */
	int cpu_latency; /* default for mounts without the option (sys/cpu_latency.h) */
	int (*stats)(struct mount_table *mounts, char **ret_json); /* NULL: none */
	int (*metrics)(struct mount_table *mounts, char **ret_text); /* for clients of endpoint */
	struct listen_socket
		endpoint; /* found, and listening unless takes_over; LISTEN_SOCKET_NONE: nowhere */
};

/* Serve until there is no reason to. SIGTERM, SIGINT or SIGHUP: accept no more mounts, and exit
 * when the last is gone; a second one ends the mounts. SIGUSR2: accept no more mounts, however
 * often it comes. SIGUSR1: print counters. Returns the exit code; the whole process belongs to the
 * server. */
int server_run(const struct server_config *c);
