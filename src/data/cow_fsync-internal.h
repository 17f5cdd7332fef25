/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "veneer/union/inode.h"

/* Sync the data, then commit what was own before that, once. Other writers go on meanwhile, unless
 * i->lock is held. 0; -EAGAIN: they have made blocks own since; -errno. */
int cow_fsync_step(struct union_fs *t, struct inode *i, int fd, bool data_only);
/* A sync of the file failed with errno, which is kept until a program is told. -errno. */
int cow_fsync_failed(struct union_fs *t, struct inode *i);
