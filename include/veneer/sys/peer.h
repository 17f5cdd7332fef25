/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a connection, held so that its number stays its own, and what it
 * may do. */
#pragma once

#include "veneer/sys/sock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
	int fd; /* the connection, borrowed */
	pid_t pid; /* in our process namespace */
	uid_t uid; /* when it connected */
	bool is_connector; /* the kernel hands out the process that connected */
	bool is_sender; /* pidfd is that of the sender of a message */
	int pidfd; /* else the process that had its number when it was held; -1: none */
};

/* One inode, of a namespace or of a root directory. */
struct peer_id {
	uint64_t dev, ino;
};

struct peer_standing {
	struct peer_id user_ns, pid_ns, mount_ns, root;
	uint64_t effective, permitted, bounding; /* capabilities, in its own user namespace */
	uid_t uids[4]; /* real, effective, saved, of the file system; in ours */
	char cgroup[256]; /* as /proc has it; empty: not known, too long, or that of all */
};

/* Hold the process that made the connection fd, which stays open for as long. -ESRCH: it is gone.
 * Before Linux 6.5 the number may be another process's by now: is_connector. 0 or -errno. */
int peer_hold(int fd, struct peer *ret);
/* From now on messages that come by fd name their sender, held where the kernel can. */
int peer_name_senders(int fd);
/* Hold the process that has sent a message; takes the sender's descriptor over. Where it has none
 * the process is held by its number, which may be another process's by now: is_sender. -ESRCH: it
 * is gone; -ENODATA: it has no number here. 0 or -errno. */
int peer_hold_sender(struct sock_sender *s, struct peer *ret);
void peer_release(struct peer *p);
/* Read what the peer may do now, as long as it lives: -ESRCH. What cannot be seen is an error: 0 or
 * -errno. */
int peer_standing(const struct peer *p, struct peer_standing *ret);
/* The same of this process. */
int peer_standing_self(struct peer_standing *ret);
bool peer_id_is(const struct peer_id *a, const struct peer_id *b);
/* The mount namespace of process 1. 0 or -errno. */
int peer_first_mount_ns(struct peer_id *ret);
