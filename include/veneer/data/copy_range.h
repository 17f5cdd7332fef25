/* SPDX-License-Identifier: Apache-2.0 */
/* copy_file_range(2) between two files of a mount. */
#pragma once

#include "veneer/union/inode.h"

/* Copy up to len bytes; the backing file systems do it, sharing extents where they can, wherever
 * the map need not hear of it. Takes the locks of both inodes and copies `to` up. Bytes copied,
 * short also when that took long and 0 at the end of `from`, or -errno if none were: -EINVAL for
 * parts of one file that overlap. */
ssize_t copy_range(struct union_fs *t, struct inode *from, off_t off_from, struct inode *to,
		   off_t off_to, size_t len);
