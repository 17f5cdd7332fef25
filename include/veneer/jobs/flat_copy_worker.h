/* SPDX-License-Identifier: Apache-2.0 */
/* Makes flat copies (flat_copy.h) of lower files that are read so much that the copy pays, one
 * after the other. It makes at most 128 MiB a second, none under pressure, and none on the last
 * tenth of a file system. One thread serves all mounts of the process. */
#pragma once

#include "veneer/union/inode.h"

struct flat_copy_worker;

/* For one mount that has an upper; max_bytes: the limit of all its copies. minds_followers: files
 * that programs read while others write them are not passed through. Starts no thread. 0 or
 * -ENOMEM. t outlives it. */
int flat_copy_worker_start(struct union_fs *t, uint64_t max_bytes, bool minds_followers,
			   struct flat_copy_worker **ret);
/* Give up the running copy for this mount, and the waiting ones. NULL is ignored. */
void flat_copy_worker_stop(struct flat_copy_worker *w);
/* A request for len bytes of a lower file, by a descriptor that only reads, was answered. The first
 * call for a copy that pays starts the thread: after the last fork. Reads the first bytes of the
 * file then, and waits for no other I/O. w NULL is ignored. */
void flat_copy_worker_read(struct flat_copy_worker *w, struct inode *i, size_t len);
