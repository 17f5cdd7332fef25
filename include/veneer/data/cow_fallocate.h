/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, holes and zeros in a regular file. Takes i->lock itself and copies up first. */
#pragma once

#include "veneer/union/inode.h"

/* fallocate(2): plain, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE; -EOPNOTSUPP for other modes of a partial
 * file. Blocks of the lower file are never preallocated over. */
int cow_fallocate(struct union_fs *t, struct inode *i, int mode, off_t off, off_t len);
