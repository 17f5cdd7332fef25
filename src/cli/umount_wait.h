/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel is done with a mount before its server is: that syncs, ends the session in the block
 * map, and removes what was for the mount alone. An unmount that waits for it leaves an upper in
 * which nothing changes any more. */
#pragma once

#include <stdbool.h>

struct umount_wait {
	char *path; /* of the mount */
	int work_fd; /* its directory in the work directory, which the server has locked and removes
			last; -1 */
	int watch_fd; /* inotify: the kernel tells of the end of the file system; -1 */
	unsigned dev_major, dev_minor;
	char *root; /* of the mount in its file system */
	/* by a process that asked: the server took the request, and has not answered */
	bool is_held;
};

/* Before the mount at path is unmounted. Its server is asked for its work directory by another
 * process, for a moment: one that does not answer is not waited for, nor one of another user. One
 * that took the request and hangs holds that process, and with it the mount: is_held. */
void umount_wait_prepare(struct umount_wait *c, const char *path);
/* After it was unmounted, is_lazy: by MNT_DETACH. Returns when the server has closed the upper; at
 * once where the file system goes on: it is mounted elsewhere, or in use. */
void umount_wait_until_closed(struct umount_wait *c, bool is_lazy);
void umount_wait_release(struct umount_wait *c);
