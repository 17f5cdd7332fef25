/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the written bytes of a regular file durable: first the data, then the records of the
 * map. */
#pragma once

#include "veneer/union/inode.h"

/* data_only: fdatasync. 0 or -errno, which may be the saved error of an earlier sync. */
int cow_fsync(struct union_fs *t, struct inode *i, bool data_only);
/* The same for a sync that no program asked for: the next cow_fsync reports its failure. */
int cow_fsync_unasked(struct union_fs *t, struct inode *i);
