/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a clone, a directory's writable view: its upper, its work directory and a
 * description, in a directory of its own below the state directory (state_dir.h). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* While it is there, the changes that it holds are being carried over. */
#define CLONE_STATE_TAR "apply.tar"

struct clone_state {
	char *path; /* of its directory */
	char *dir, *dest; /* absolute: what is cloned, and where it is mounted */
	ino_t dir_ino;
	char *options; /* with which it is mounted, besides those for its layers */
	struct timespec
		since; /* what was changed at dir at this time or later is not of the clone */
	bool has_made_dest;
	int lock_fd; /* of its directory, locked; -1: it is not */
};

/* Make one for these paths, locked; c is empty but for has_made_dest. 0, or -errno after a
 * sentence. Release in any case. */
int clone_state_make(const char *dir, const char *dest, const char *options, struct clone_state *c);
/* Find the clone of a mount point, mounted or not; dest is the path as the kernel has it. 1; 0:
 * none; -errno after a sentence. */
int clone_state_find(const char *dest, struct clone_state *ret);
/* Call fn for each of this user's, until it gives something else than 0, which is returned. One
 * that cannot be read is passed over, after a sentence. */
int clone_state_each(int (*fn)(void *arg, struct clone_state *c), void *arg);
/* Keep other commands away from it, and read its description again: 0; -EBUSY or -errno after a
 * sentence. */
int clone_state_lock(struct clone_state *c);
/* Of one that is locked: empty its upper and its work directory, and write its description, with
 * all that is at dir now as what it stands on. 0 or -errno, after a sentence. */
int clone_state_renew(struct clone_state *c);
/* What is cloned, open: a descriptor; -errno after a sentence, also if another directory is there
 * by now. */
int clone_state_open_dir(const struct clone_state *c);
/* Remove it from the disk, with its upper. 0 or -errno, after a sentence. */
int clone_state_remove(struct clone_state *c);
/* PATH/NAME, malloc'd; NULL without memory. */
char *clone_state_file(const struct clone_state *c, const char *name);
/* Begin with what `given` names: 1 with one, locked; 0: it is no clone; -errno after a sentence. */
int clone_state_take(const char *given, struct clone_state *ret);
/* Of one that is not mounted: 0; -EBUSY after a sentence: a mounted branch stands on a snapshot of
 * it; -errno likewise. */
int clone_state_check_branches(const struct clone_state *c);
/* Mount the view. The exit code. */
int clone_state_mount(const struct clone_state *c);
/* What -o takes for a tool, malloc'd: its lower layer alone, or with the upper; NULL without
 * memory. */
char *clone_state_layers(const struct clone_state *c, bool with_upper);
/* Changes of it are being carried over, or were when that was interrupted (apply.h). */
bool clone_state_is_applying(const struct clone_state *c);
void clone_state_release(struct clone_state *c);
