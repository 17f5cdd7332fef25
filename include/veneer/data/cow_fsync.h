/* SPDX-License-Identifier: Apache-2.0 */
/* Making what was written to a regular file durable: the data, then what the map needs. */
#pragma once

#include "veneer/union/inode.h"

/* data_only: fdatasync. 0 or -errno, which may be of an earlier sync. */
int cow_fsync(struct union_fs *t, struct inode *i, bool data_only);
/* The same for a sync that no program asked for: a failure is kept for the next cow_fsync. */
int cow_fsync_unasked(struct union_fs *t, struct inode *i);
