/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-off of mounts from a supervisor whose server is dead to a supervisor of another program. One
 * connection carries every descriptor and a handoff message. Until the old supervisor has sent its
 * last OK, its state does not change, and neither writes anything that both can see. After that it
 * owns nothing. The locks of the mounts are free when it is gone.
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

/* Called in a process of one thread, with no server that shares its memory. 0: the other supervisor
 * has everything, and only the standard descriptors of this process are open. -errno: nothing has
 * changed; the connection stays the caller's. */
int handoff_offer(int fd, const struct handoff *e);
/* Ask at *fd, and take the mounts. own: descriptors of the caller, which get other numbers, as *fd
 * does; no others but the standard ones may be open. ret's supervisor state counts one death. On
 * success the old supervisor is gone, and *fd is closed. -errno and a sentence: the old one goes
 * on, and this process should end. */
int handoff_take(int *fd, int *const *own, size_t n_own, struct handoff *ret, char *err,
		 size_t err_size);
