/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a connection, held so that its pid is not reused, and its
 * rights. */
#pragma once

#include "veneer/sys/sock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
	int fd; /* the connection, borrowed */
	pid_t pid; /* in this process namespace */
	uid_t uid; /* at the time of the connect */
	bool is_connector; /* the kernel provides the process that connected */
	bool is_sender; /* pidfd is of the sender of a message */
	int pidfd; /* otherwise of the process that had the pid when it was held; -1: none */
};

/* An inode of a namespace or root directory. */
struct peer_id {
	uint64_t dev, ino;
};

struct peer_standing {
	struct peer_id user_ns, pid_ns, mount_ns, root;
	uint64_t effective, permitted, bounding; /* capabilities, in its own user namespace */
	uid_t uids[4]; /* real, effective, saved, file system; in this user namespace */
	char cgroup[256]; /* as in /proc; empty: unknown, too long, or the root group */
};

/* Hold the process that made the connection fd, which must stay open as long. -ESRCH: it has ended.
 * Before Linux 6.5 (no is_connector) the pid may be another process's by now. 0 or -errno. */
int peer_hold(int fd, struct peer *ret);
/* From now on messages received by fd name their sender, held if the kernel can. 0 or -errno. */
int peer_name_senders(int fd);
/* Hold the sender of a message; takes over its descriptor. Without one (no is_sender) the process
 * is held by its pid, which may be another process's by now. -ESRCH: it has ended; -ENODATA: it has
 * no pid here. 0 or -errno. */
int peer_hold_sender(struct sock_sender *s, struct peer *ret);
void peer_release(struct peer *p);
/* Read the current rights of the peer while it lives: -ESRCH. Invisible values are an error. 0 or
 * -errno. */
int peer_standing(const struct peer *p, struct peer_standing *ret);
/* The same of this process. */
int peer_standing_self(struct peer_standing *ret);
bool peer_id_is(const struct peer_id *a, const struct peer_id *b);
/* The mount namespace of process 1. 0 or -errno. */
int peer_first_mount_ns(struct peer_id *ret);
