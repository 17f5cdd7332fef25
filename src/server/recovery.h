/* SPDX-License-Identifier: Apache-2.0 */
/* First steps of a server that follows a dead one, before it serves. */
#pragma once

#include "veneer/server/mount_table.h"

/* Give up mounts as supervisor_state_judge decided, and close the previous server's descriptors.
 * Kept are those of the saved mounts, the standard ones, and n of the caller's. Files, which may
 * take long to close, are closed after it returns. This process must not have opened anything else,
 * and only this thread may open anything. */
void recovery_close_others(struct supervisor_state *l, const int *fds, size_t n);
/* Call fn for each descriptor of the saved mounts; borrowed. */
void recovery_each_fd(struct supervisor_state *l, void (*fn)(int fd, void *arg), void *arg);
/* Resume the saved mounts, several at once, in the order of their time at the last resume. A mount
 * that cannot be resumed is logged and dropped: its users get ENOTCONN. Returns when all are
 * served, or when only mounts remain that wait for an unresponsive file system. Those hold up no
 * other mount, and are resumed on threads of their own; the mount table counts them. The upgrade's
 * waiting process (supervisor_state_word) gets the result after the last mount, or after half a
 * minute. 0 or -ENOMEM: nothing was done. */
int recovery_resume(struct supervisor_state *l, struct mount_table *r);
