/* SPDX-License-Identifier: Apache-2.0 */
/* copy_file_range(2) between two files of a mount. */
#pragma once

#include "veneer/union/inode.h"

/* A copy of a file of the layers below that has so many bytes refers to that one's blocks. Its
 * attributes take 4 KiB on ext4 and 130 to 260 us, as long as 64 KiB take to be copied. */
#define COPY_RANGE_REFERENCE_MIN (64 * 1024)

/* Copy up to len bytes; the backing file systems do it, sharing extents where they can, wherever
 * the map need not hear of it. Takes the locks of both inodes and copies `to` up. Bytes copied,
 * short also when that took long and 0 at the end of `from`, or -errno if none were: -EINVAL for
 * parts of one file that overlap. */
ssize_t copy_range(struct union_fs *t, struct inode *from, off_t off_from, struct inode *to,
		   off_t off_to, size_t len);
