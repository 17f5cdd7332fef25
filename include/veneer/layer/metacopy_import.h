/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an upper that kernel overlayfs wrote with metacopy=on: the attributes are the upper's,
 * all bytes are those of a lower file. Taken over, such a file is a partial file without an own
 * block. */
#pragma once

#include "veneer/union/inode.h"

/* What (dirfd, name) of the upper gets its bytes from: 1 with *ret as of whiteout_metacopy, 0 when
 * it is no such file, -EUCLEAN for one whose data cannot be known. */
int metacopy_import_origin(int dirfd, const char *name, char origin[PATH_MAX]);
/* A metacopy without a path from the root is of the file at its own place, and writers of its
 * directory may move it. The file fd is one of `low` (low_fd, O_PATH will do) if overlayfs noted
 * the handle of that file, or if every reader of the metacopy may read that file. 0, -EUCLEAN (not
 * logged), other -errno. */
int metacopy_import_check(int fd, int low_fd, const struct stat *low);
#define METACOPY_IMPORT_SAID                                                                      \
	"a metacopy that may have been moved to a file it was not made of: mount with userxattr " \
	"if it was not"
/* Make it a partial file of base, which it must have the size of (else -EUCLEAN). Done by one
 * thread once; killed in between, it is taken over again. 0 or -errno. */
int metacopy_import(struct union_fs *t, int dirfd, const char *name, struct image_entry *base);
