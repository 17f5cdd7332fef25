/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the bytes of a regular file: block-granular copy-on-write, truncation, allocation,
 * syncing. All take i->lock themselves and copy up first if need be. */
#pragma once

#include "veneer/union/inode.h"

/* Write len bytes at off. Blocks that are not own yet are completed from below where the write
 * covers them in part; a write of at least half a chunk takes the whole chunk (HP-Mapper,
 * section 3.2). The data is in the upper file and the map says so when this returns 0. -errno:
 * nothing of it need be there. */
int cow_write(struct union_fs *t, struct inode *i, const void *p, size_t len, off_t off);
/* Set the size. What was cut off is never seen again, also when the file grows later. */
int cow_truncate(struct union_fs *t, struct inode *i, off_t size);
/* fallocate(2): plain, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE; -EOPNOTSUPP for other modes. Blocks seen
 * from below are never preallocated over. */
int cow_fallocate(struct union_fs *t, struct inode *i, int mode, off_t off, off_t len);
/* Make what was written durable: the data, then what the map needs. data_only: fdatasync. */
int cow_fsync(struct union_fs *t, struct inode *i, bool data_only);
/* The same for a sync that no program asked for: a failure is kept for the next cow_fsync. */
int cow_sync_unasked(struct union_fs *t, struct inode *i);
