/* SPDX-License-Identifier: Apache-2.0 */
/* Background care of one upper's map: makes the first one ahead, keeps its log short, and where a
 * power cut would otherwise undo unsynced writes for good, commits changed files every few seconds,
 * as a file system's own writeback does. */
#pragma once

#include "veneer/union/inode.h"

struct checkpoint;

/* Start the thread; after the last fork. 0 or -errno. t outlives it. */
int checkpoint_start(struct union_fs *t, struct checkpoint **ret);
/* Stop and join it. NULL is ignored. */
void checkpoint_stop(struct checkpoint *c);
