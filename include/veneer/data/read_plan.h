/* SPDX-License-Identifier: Apache-2.0 */
/* A read as what is to be sent: pieces of the block cache's windows where the bytes are a lower
 * file's, and of a buffer where they are the upper's, or where windows do not serve. */
#pragma once

#include "veneer/sys/mmap_cache.h"
#include "veneer/union/inode.h"

#include <sys/uio.h>

#define READ_PLAN_MAX \
	320 /* a request of 1 MiB, every other block of which is the upper's, and some */

/* Zero `niov` and `nwindows` to begin with. What iov points to is for writev(2) alone: never load
 * from it. */
struct read_plan {
	struct iovec iov[READ_PLAN_MAX];
	int niov;
	struct mmap_cache_part windows[READ_PLAN_MAX]; /* pinned */
	size_t nwindows;
};

/* Read up to len bytes at off; short only at end of file. buf has room for len and stays as long as
 * ret does. Takes i->lock for reading. Bytes or -errno, as read_file. In any case
 * read_plan_release. */
ssize_t read_plan_read(struct union_fs *t, struct inode *i, void *buf, size_t len, off_t off,
		       struct read_plan *ret);
void read_plan_release(struct read_plan *p);
/* The kernel could not take them (EFAULT): no window of them is used again. */
void read_plan_doubt(struct read_plan *p);
