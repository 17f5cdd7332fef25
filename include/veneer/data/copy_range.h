/* SPDX-License-Identifier: Apache-2.0 */
/* copy_file_range(2) between two files of a mount. */
#pragma once

#include "veneer/union/inode.h"

/* A copy of at least this many bytes of a lower file refers to the blocks of that file. Its
 * attributes take 4 KiB on ext4 and 130 to 260 us, the time of copying 64 KiB. */
#define COPY_RANGE_REFERENCE_MIN (64 * 1024)

/* Copy up to len bytes. The backing file systems copy, and share extents if they can, wherever the
 * map needs no record. Takes the locks of both inodes and copies `to` up. Returns the bytes copied;
 * fewer than len also when the copy took long, 0 at the end of `from`. -errno if nothing was
 * copied; -EINVAL for overlapping ranges of one file. */
ssize_t copy_range(struct union_fs *t, struct inode *from, off_t off_from, struct inode *to,
		   off_t off_to, size_t len);
