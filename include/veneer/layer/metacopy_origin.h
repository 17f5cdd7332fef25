/* SPDX-License-Identifier: Apache-2.0 */
/* Files that kernel overlayfs wrote with metacopy=on: the attributes are their layer's, all bytes
 * are those of a lower file. Which one is said here. */
#pragma once

#include <limits.h>

struct stat;

/* The file from which (dirfd, name) of the upper gets its bytes: 1 with *ret as of
 * whiteout_metacopy, 0 when it is no such file, -EUCLEAN for one whose data cannot be known. */
int metacopy_origin_read(int dirfd, const char *name, char origin[PATH_MAX]);
/* A metacopy without a path from the root is of the file at its own place, and writers of its
 * directory may move it. The file fd is one of `low` (low_fd, O_PATH will do) if overlayfs noted
 * the handle of that file, or if every reader of the metacopy may read that file. 0, -EUCLEAN (not
 * logged), other -errno. */
int metacopy_origin_check(int fd, int low_fd, const struct stat *low);
#define METACOPY_ORIGIN_SAID                                                                      \
	"a metacopy that may have been moved to a file it was not made of: mount with userxattr " \
	"if it was not"
