/* SPDX-License-Identifier: Apache-2.0 */
/* The work directory. Each mount has a directory of its own below workdir/work for unfinished
 * files. Overlayfs's mark of a volatile mount is there, too. Nothing in it is needed after the
 * mount. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define WORKDIR_PREFIX "veneer-" /* prefix of the directories in workdir/work */

/* A mount's own directory in workdir/work. */
struct workdir {
	int parent; /* workdir/work */
	char *name; /* malloc'd */
	int fd;
};
#define WORKDIR_NONE ((struct workdir){ .parent = -1, .fd = -1 })

/* Make work in the directory top, and in it a directory of this mount, which is locked as long as
 * it exists. Remove the directories of dead mounts; if there is no room for another one, empty and
 * reuse one of them. path is for messages. 0, or -errno with a sentence. */
int workdir_open(int top, const char *path, struct workdir *ret, char *err, size_t err_size);
/* Reuse and empty the directory of a mount that was left and is being reopened. Its lock stays, so
 * `veneer umount`, which waits for that, keeps waiting. False: there is none, or it was changed.
 * left is WORKDIR_NONE afterwards. */
bool workdir_adopt(struct workdir *left, struct workdir *ret);
/* Remove it with its contents. Ignores WORKDIR_NONE, and files that cannot be removed. */
void workdir_close(struct workdir *w);
/* Leave it to a later workdir_open, which reuses or removes it. */
void workdir_leave(struct workdir *w);
/* Attribute of a mount's root: the path of the mount's own directory, for programs that unmount it.
 * The directory is removed last, after the upper is closed. */
#define WORKDIR_ATTR	    "system.veneer.work"
#define WORKDIR_HANDLE_SIZE (PATH_MAX + 128)
/* path: of the work directory, absolute. Returns the length without the NUL, or -errno. */
int workdir_handle(const char *path, const struct workdir *w, char ret[WORKDIR_HANDLE_SIZE]);
/* Open the directory of a handle. -ESTALE: another directory is there, or it is not one of
 * veneer's; other -errno. */
int workdir_open_handle(const char *handle);
/* Refuse an upper that was mounted volatile before a reboot (-EINVAL and a sentence). If this mount
 * is volatile, write the mark. */
int workdir_check_volatile(int parent, const char *path, bool is_volatile, char *err,
			   size_t err_size);
/* Does another living mount have a directory in here? own: the name of this mount's directory, or
 * "". */
bool workdir_has_another(int parent, const char *own);
/* Is there a mark of this boot? */
bool workdir_is_volatile(int parent);
/* Remove the mark once all writes of this boot are on disk, unless another mount, with a directory
 * here, relies on it. */
void workdir_end_volatile(const struct workdir *w);
