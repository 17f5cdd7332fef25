/* SPDX-License-Identifier: Apache-2.0 */
/* The work directory: a place of our own below workdir/work for what is not ready to be seen, and
 * overlayfs's mark of a volatile mount. Nothing here is needed after the mount. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define WORKDIR_PREFIX "veneer-" /* of the directories in workdir/work, one a mount */

/* Make work in the directory top and in it a directory of this mount's own, locked as long as it
 * lives; remove those of mounts that died, or take one of them over, emptied, where there is no
 * room for another. path is for messages. ret_parent: descriptor of top/work; ret_name: malloc'd.
 * 0, or -errno with a sentence. */
int workdir_open(int top, const char *path, int *ret_parent, char **ret_name, int *ret_fd,
		 char *err, size_t err_size);
/* Remove it, with what is left in it. Bad descriptors and NULL are ignored. */
void workdir_close(int parent, char *name, int fd);
/* Attribute of a mount's root: the place of the mount's own directory, for processes that may
 * unmount it. The directory goes last, so that its end is the end of closing the upper. */
#define WORKDIR_ATTR	    "system.veneer.work"
#define WORKDIR_HANDLE_SIZE (PATH_MAX + 128)
/* path: of the work directory, absolute. The length without a NUL, or -errno. */
int workdir_handle(const char *path, const char *name, int fd, char ret[WORKDIR_HANDLE_SIZE]);
/* A descriptor of that directory; -errno; -ESTALE: another one is there, or it does not look like
 * one of ours. */
int workdir_open_handle(const char *handle);
/* Refuse an upper that was mounted volatile before the machine went down (-EINVAL and a sentence);
 * leave the mark if this mount is volatile. */
int workdir_check_volatile(int parent, const char *path, bool is_volatile, char *err,
			   size_t err_size);
/* Is any other mount alive that has a directory in here? own: the name of ours, or empty. */
bool workdir_has_another(int parent, const char *own);
/* Is the mark there, of this boot? */
bool workdir_is_volatile(int parent);
/* All that mounts of this boot wrote is on disk: remove it, unless another mount has a directory
 * beside ours (name, fd), which relies on it. */
void workdir_end_volatile(int parent, const char *name, int fd);
