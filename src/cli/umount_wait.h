/* SPDX-License-Identifier: Apache-2.0 */
/* Waits until the server has closed a mount. The kernel finishes an unmount earlier than the
 * server, which still syncs, ends the session in the block map, and removes the work directory.
 * After the wait nothing in the upper changes any more. */
#pragma once

#include <stdbool.h>

struct umount_wait {
	char *path; /* of the mount */
	int work_fd; /* its directory in the work directory, which the server locks and removes
			last; -1: unknown */
	int watch_fd; /* inotify for the end of the file system; -1 */
	unsigned dev_major, dev_minor;
	char *root; /* of the mount, within its file system */
	/* A process of this command asked: the server took the request, and has not answered. */
	bool is_held;
};

/* Call it before the mount at path is unmounted. A child asks its server for the work directory,
 * for a moment. A server that does not answer, or is another user's, is not waited for. A server
 * that took the request and hangs holds the child, and with it the mount: is_held. */
void umount_wait_prepare(struct umount_wait *c, const char *path);
/* Call it after the unmount; is_lazy: it was by MNT_DETACH. Returns when the server has closed the
 * upper, or at once if the file system goes on, because it is mounted elsewhere or in use. */
void umount_wait_until_closed(struct umount_wait *c, bool is_lazy);
void umount_wait_release(struct umount_wait *c);
