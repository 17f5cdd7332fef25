/* SPDX-License-Identifier: Apache-2.0 */
/* Admits one writer at a time to an upper. It locks the upper's root by flock, which every user can
 * do who may read it, and `work` in the work directory, which only the server's user can open.
 * doc/SPEC.md, 1.2, has the rules. */
#pragma once

#include "veneer/mount/mount_dirs.h"

/* Attributes of the root. */
#define UPPER_LOCK_WORK_ATTR	  "user.veneer.work"
#define UPPER_LOCK_CONTESTED_ATTR "user.veneer.contested"

struct upper_lock {
	int fd; /* `work`, locked; -1: none, the lock of the root alone decides */
	bool is_contested; /* another process has the lock of the root, and fd alone decides */
};

/* Take the locks for the upper at rootfd, or wait for them as long as a closing server may need.
 * dirs: the work directory, the lock of a dead server (taken over), and the hook that reports the
 * wait; NULL: of a tool, which has no work directory. 0; -EBUSY; -errno; with a sentence.
 * upper_lock_release in every case. */
int upper_lock_take(struct upper_lock *l, const char *path, int rootfd, struct mount_dirs *dirs,
		    char *err, size_t err_size);
/* Let the next mount take the upper while this one syncs. Without effect on a contested lock:
 * nothing else keeps others out. */
void upper_lock_yield(const struct upper_lock *l, int rootfd);
/* Take it again after that: true, if no other mount has it and none had it with another work
 * directory. own: the name of this mount's directory in `work`. A process that only locked the root
 * does not prevent it: then the lock is contested. */
bool upper_lock_retake(struct upper_lock *l, int rootfd, const char *own);
/* After this mount's last write. rootfd stays open and keeps its lock until it is closed; -1 if
 * there is none. */
void upper_lock_release(struct upper_lock *l, int rootfd);
/* For a tool: become the only writer of the upper, for as long as rootfd is open. 0, -EBUSY or
 * -errno. */
int upper_lock_alone(const char *path, int rootfd);
