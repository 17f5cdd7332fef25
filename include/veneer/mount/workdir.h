/* SPDX-License-Identifier: Apache-2.0 */
/* The work directory: each mount has a directory of its own below workdir/work for unfinished
 * files; and overlayfs's mark of a volatile mount. Nothing here is needed after the mount. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define WORKDIR_PREFIX "veneer-" /* of the directories in workdir/work, one a mount */

/* A mount's own directory in workdir/work. */
struct workdir {
	int parent; /* workdir/work */
	char *name; /* malloc'd */
	int fd;
};
#define WORKDIR_NONE ((struct workdir){ .parent = -1, .fd = -1 })

/* Make work in the directory top and in it a directory of this mount's own, locked as long as it
 * lives; remove those of mounts that died, or take one of them over, emptied, where there is no
 * room for another. path is for messages. 0, or -errno with a sentence. */
int workdir_open(int top, const char *path, struct workdir *ret, char *err, size_t err_size);
/* Go on in the directory of a mount that was left and is opened anew, and empty it. Its lock stays:
 * `veneer umount`, which waits for that, waits on. False: there is none that is as we made it. left
 * is WORKDIR_NONE afterwards. */
bool workdir_adopt(struct workdir *left, struct workdir *ret);
/* Remove it with its contents. WORKDIR_NONE is ignored, and files that cannot be removed. */
void workdir_close(struct workdir *w);
/* Leave it to a later workdir_open, which reuses or removes it. */
void workdir_leave(struct workdir *w);
/* Attribute of a mount's root: the path of the mount's own directory, for processes that may
 * unmount it. The directory is removed last, when the upper is closed. */
#define WORKDIR_ATTR	    "system.veneer.work"
#define WORKDIR_HANDLE_SIZE (PATH_MAX + 128)
/* path: of the work directory, absolute. The length without a NUL, or -errno. */
int workdir_handle(const char *path, const struct workdir *w, char ret[WORKDIR_HANDLE_SIZE]);
/* A descriptor of that directory; -errno; -ESTALE: another one is there, or it does not look like
 * one of ours. */
int workdir_open_handle(const char *handle);
/* Refuse an upper that was mounted volatile before the machine went down (-EINVAL and a sentence);
 * write the mark if this mount is volatile. */
int workdir_check_volatile(int parent, const char *path, bool is_volatile, char *err,
			   size_t err_size);
/* Is any other mount alive that has a directory in here? own: the name of ours, or empty. */
bool workdir_has_another(int parent, const char *own);
/* Is the mark there, of this boot? */
bool workdir_is_volatile(int parent);
/* Remove the mark when all writes of this boot are on disk, unless another mount, which has a
 * directory here, relies on it. */
void workdir_end_volatile(const struct workdir *w);
