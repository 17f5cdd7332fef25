/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a clone, which is a writable view of a directory: its upper, its work directory and
 * a description. Each clone has a directory of its own below the state directory (state_dir.h). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* While this file exists, the changes in it are being applied. */
#define CLONE_STATE_TAR "apply.tar"

struct clone_state {
	char *path; /* of the clone's directory */
	char *dir, *dest; /* absolute: the cloned directory, and the mount point */
	ino_t dir_ino;
	char *options; /* options of the mount, without those for its layers */
	struct timespec since; /* a change at dir at this time or later is not part of the clone */
	bool has_made_dest;
	int lock_fd; /* of its directory, locked; -1: not locked */
};

/* Make the state of a clone for these paths, locked. c must be empty except for has_made_dest. 0,
 * or -errno after a sentence. Release it in any case. */
int clone_state_make(const char *dir, const char *dest, const char *options, struct clone_state *c);
/* Find the clone of a mount point, mounted or not; dest is the path in the form of the kernel. 1;
 * 0: there is none; -errno after a sentence. */
int clone_state_find(const char *dest, struct clone_state *ret);
/* Call fn for each clone of this user, until it returns something other than 0, which is then the
 * result. An unreadable one is skipped after a sentence. */
int clone_state_each(int (*fn)(void *arg, struct clone_state *c), void *arg);
/* Lock the clone against other commands, and reload its description. 0; -EBUSY or other -errno
 * after a sentence. */
int clone_state_lock(struct clone_state *c);
/* For a locked clone: empty its upper and its work directory, and write its description. All
 * present contents of dir become its base. 0, or -errno after a sentence. */
int clone_state_renew(struct clone_state *c);
/* Open the cloned directory. A descriptor; -errno after a sentence, also if it was replaced by
 * another directory. */
int clone_state_open_dir(const struct clone_state *c);
/* Remove the clone from the disk, with its upper. 0, or -errno after a sentence. */
int clone_state_remove(struct clone_state *c);
/* PATH/NAME, malloc'd; NULL: no memory. */
char *clone_state_file(const struct clone_state *c, const char *name);
/* Find and lock the clone at `given`. 1; 0: it is not a clone; -errno after a sentence. */
int clone_state_take(const char *given, struct clone_state *ret);
/* For an unmounted clone. 0; -EBUSY after a sentence: a mounted branch stands on one of its
 * snapshots; other -errno after a sentence. */
int clone_state_check_branches(const struct clone_state *c);
/* Mount the clone. Returns the exit code. */
int clone_state_mount(const struct clone_state *c);
/* The -o list of its layers for a tool, malloc'd: the lower layer alone, or with the upper. NULL:
 * no memory. */
char *clone_state_layers(const struct clone_state *c, bool with_upper);
/* Are its changes being applied, or was that interrupted (apply.h)? */
bool clone_state_is_applying(const struct clone_state *c);
void clone_state_release(struct clone_state *c);
