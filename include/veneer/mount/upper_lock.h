/* SPDX-License-Identifier: Apache-2.0 */
/* Admits one writer at a time to an upper. It locks the upper's root by flock, as any user with
 * read permission can, and `work` in the work directory, which only the server's user can open.
 * doc/SPEC.md, 1.2, has the rules. */
#pragma once

#include "veneer/mount/mount_dirs.h"

/* extended attributes of the upper's root */
#define UPPER_LOCK_WORK_ATTR	  "user.veneer.work"
#define UPPER_LOCK_CONTESTED_ATTR "user.veneer.contested"

struct upper_lock {
	int fd; /* `work`, locked; -1: none, and the lock of the root alone decides */
	bool is_contested; /* another process has the lock of the root, so fd alone decides */
};

/* Take the locks for the upper at rootfd, and wait for a server that is closing. The work
 * directory, the lock of a dead server (taken over) and the hook that reports the wait are in dirs.
 * A tool has no work directory, and passes NULL. 0; -EBUSY; other -errno; a sentence on failure.
 * Call upper_lock_release in every case. */
int upper_lock_take(struct upper_lock *l, const char *path, int rootfd, struct mount_dirs *dirs,
		    char *err, size_t err_size);
/* Let the next mount take the upper while this one syncs. Does nothing for a contested lock, since
 * only that keeps other mounts out. */
void upper_lock_yield(const struct upper_lock *l, int rootfd);
/* Take the lock again. True: no other mount has it, and none had it with another work directory.
 * own: the name of this mount's directory in `work`. A process that only locks the root does not
 * prevent this: the lock is then contested. */
bool upper_lock_retake(struct upper_lock *l, int rootfd, const char *own);
/* Call it after this mount's last write. rootfd (-1: none) stays open, and keeps its lock until it
 * is closed. */
void upper_lock_release(struct upper_lock *l, int rootfd);
/* For a tool: become the only writer of the upper, as long as rootfd is open. 0, -EBUSY or other
 * -errno. */
int upper_lock_alone(const char *path, int rootfd);
