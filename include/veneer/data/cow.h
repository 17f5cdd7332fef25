/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the bytes of a regular file: block-granular copy-on-write and truncation. Both take
 * i->lock themselves and copy up first if need be. */
#pragma once

#include "veneer/union/inode.h"

/* Write len bytes at off. Blocks that are not own yet are completed from below where the write
 * covers them in part; a write of at least half a chunk takes the whole chunk (HP-Mapper,
 * section 3.2). The data is in the upper file and the map says so when this returns 0. -errno:
 * nothing of it need be there. */
int cow_write(struct union_fs *t, struct inode *i, const void *p, size_t len, off_t off);
/* Set the size. What was cut off is never seen again, also when the file grows later. */
int cow_truncate(struct union_fs *t, struct inode *i, off_t size);
