/* SPDX-License-Identifier: Apache-2.0 */
/* Has the kernel forget names and files that nobody uses, where inodes would fill this process's
 * memory. What the kernel remembers of a mount is charged to the process that looked it up, and
 * taken back when *that* one is short of memory; the inode that each of these costs us is charged
 * to nobody but us. So one container that looks up a million names would have a server with a
 * memory limit killed, with all of its siblings, and the next one again.
 *
 * One thread a process, which sleeps without waking up while mounts do not grow. Takes
 * FUSE_NOTIFY_PRUNE (Linux 6.18): what older kernels know, FUSE_NOTIFY_INVAL_ENTRY, would take away
 * what a container has mounted on a name. */
#pragma once

#include "veneer/union/inode.h"

/* A mount takes part from now on; its node ids are those of t. fuse_fd: its /dev/fuse, whose number
 * stays what it is, also if the server dies. Both are borrowed until inode_shrinker_leave. To be
 * called before requests are answered. 0 or -errno: its inodes live as long as the kernel likes. */
int inode_shrinker_enter(struct union_fs *t, int fuse_fd, uint32_t *ret_number);
/* No more, and nothing of it is looked at when this returns; 0 does nothing. May wait for requests
 * of that mount: to be called while they are answered, or when the mount is gone. */
void inode_shrinker_leave(uint32_t number);
