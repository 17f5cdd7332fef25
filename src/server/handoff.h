/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-off of the mounts of a supervisor whose server is dead to a supervisor of another program:
 * one connection carries every descriptor and a handoff message. Until the old supervisor has sent
 * its last word nothing changes for it, and nothing that both can see is written; after that it
 * owns nothing. Locks of mounts are free when it is gone.
 *
 *   new     UPGRADE                              PONG (its process id)
 *   old               BEQUEST... (descriptors)                           OK, and the end */
#pragma once

#include "veneer/recover/supervisor_state.h"

#include <stdint.h>
#include <sys/types.h>

/* The descriptors and state of a supervisor. */
struct handoff {
	struct supervisor_state *supervisor_state;
	int listen_fd, notify_fd; /* the latter may be -1 */
	bool owns_socket;
};

/* By a process of one thread that no server shares its memory with. 0: the other has it all, and of
 * this process's descriptors none but the standard ones is open. -errno: nothing has happened; the
 * connection stays the caller's. */
int handoff_offer(int fd, const struct handoff *e);
/* Ask at *fd, and take. own: descriptors of the caller, which get other numbers, as *fd does; no
 * others but the standard ones may be open. ret's supervisor state counts one death. Then the old
 * supervisor is gone, and *fd closed. -errno and a sentence: the old one goes on, and this process
 * should end. */
int handoff_take(int *fd, int *const *own, size_t n_own, struct handoff *ret, char *err,
		 size_t err_size);
