/* SPDX-License-Identifier: Apache-2.0 */
/* Background work on one upper's map: makes the map in advance and keeps its log short. Where a
 * power cut would otherwise undo unsynced writes for good, it commits changed files every few
 * seconds, as a file system's own writeback does. */
#pragma once

#include "veneer/sys/worker.h"
#include "veneer/union/inode.h"

/* Start the thread, which worker_stop ends; after the last fork. 0 or -errno. t outlives it. */
int checkpoint_start(struct union_fs *t, struct worker **ret);
