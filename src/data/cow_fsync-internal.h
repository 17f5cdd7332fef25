/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "veneer/union/inode.h"

/* One round of fsync: sync the data, then commit the blocks that were own before. Other writers
 * proceed meanwhile, unless the caller holds i->lock. 0; -EAGAIN: other writers have made blocks
 * own since; -errno. */
int cow_fsync_step(struct union_fs *t, struct inode *i, int fd, bool data_only);
/* Save errno of a failed sync until a program is told. -errno. */
int cow_fsync_failed(struct union_fs *t, struct inode *i);
