/* SPDX-License-Identifier: Apache-2.0 */
/* A server that comes after one that died: what it does before it serves. */
#pragma once

#include "veneer/server/mount_table.h"

/* Let go of the mounts that are given up (supervisor_state_judge), and close what the one before
 * had open, but for what the saved mounts need, the standard descriptors and n of the caller's;
 * files, which may take long, after it returns. Of this process nothing else is open yet, and there
 * is one thread that opens anything. */
void recovery_close_others(struct supervisor_state *l, const int *fds, size_t n);
/* Call fn for each descriptor that the saved mounts need; borrowed. */
void recovery_each_fd(struct supervisor_state *l, void (*fn)(int fd, void *arg), void *arg);
/* Resume the saved mounts, several at once and the ones first that were quick the last time. A
 * mount that cannot be resumed is logged and dropped: its users get ENOTCONN. Returns when all are
 * served, or when only those are left that wait for a file system that does not answer, which hold
 * up no other; those are resumed on threads of their own, counted by the mount table. The process
 * that waits for the word (supervisor_state_word) is told after the last one, or after half a
 * minute. 0 or -ENOMEM: nothing was done. */
int recovery_resume(struct supervisor_state *l, struct mount_table *r);
