/* SPDX-License-Identifier: Apache-2.0 */
/* Has the kernel forget unused names and files before inodes fill this process's memory. The
 * kernel's dentries and inodes of a mount are charged to the process that looked them up, and
 * reclaimed when *that* one is short of memory. The inode that the server keeps for each is charged
 * to the server. So without this a container that looks up a million names would have a server with
 * a memory limit killed. That takes down all other containers, and the next server again.
 *
 * One thread a process, which sleeps without waking up while mounts do not grow. Takes
 * FUSE_NOTIFY_PRUNE (Linux 6.18): FUSE_NOTIFY_INVAL_ENTRY of older kernels would detach a
 * container's mount on a name. */
#pragma once

#include "veneer/union/inode.h"

/* Enter a mount before its requests are answered; its node ids are those of t. fuse_fd: its
 * /dev/fuse, whose number stays, also if the server dies. Both are borrowed until
 * inode_shrinker_leave. 0 or -errno: the mount's inodes stay as long as the kernel keeps them. */
int inode_shrinker_enter(struct union_fs *t, int fuse_fd, uint32_t *ret_number);
/* Take the mount out: the thread does not use it when this returns; 0 does nothing. May wait for
 * requests of that mount, so call it while they are answered, or when the mount is gone. */
void inode_shrinker_leave(uint32_t number);
