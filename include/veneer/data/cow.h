/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the bytes of a regular file: block-granular copy-on-write and truncation. Both take
 * i->lock themselves and copy up first if need be. */
#pragma once

#include "veneer/union/inode.h"

/* Write len bytes at off. Blocks that are not own and that the write covers in part are completed
 * from the lower file. A write of at least half a chunk makes the whole chunk own (HP-Mapper,
 * section 3.2). On 0 the data is in the upper file and the map records it. -errno: none of the data
 * need be there. */
int cow_write(struct union_fs *t, struct inode *i, const void *p, size_t len, off_t off);
/* Set the size. Bytes that were cut off never reappear, also when the file grows later. */
int cow_truncate(struct union_fs *t, struct inode *i, off_t size);
