/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a read as a list of pieces to send. Bytes of lower files come from windows of the block
 * cache, bytes of the upper and short runs from a buffer. */
#pragma once

#include "veneer/sys/mmap_cache.h"
#include "veneer/union/inode.h"

#include <sys/uio.h>

#define READ_PLAN_MAX \
	320 /* a request of 1 MiB, every other block of which is the upper's, and some */

/* Start with `niov` and `nwindows` 0. Pass iov to writev(2) only, and never load from its
 * memory. */
struct read_plan {
	struct iovec iov[READ_PLAN_MAX];
	int niov;
	struct mmap_cache_part windows[READ_PLAN_MAX]; /* pinned */
	size_t nwindows;
};

/* Read up to len bytes at off; short only at end of file. buf has room for len and must outlive
 * ret. Takes i->lock for reading. Bytes or -errno, as read_file. Call read_plan_release in any
 * case. */
ssize_t read_plan_read(struct union_fs *t, struct inode *i, void *buf, size_t len, off_t off,
		       struct read_plan *ret);
void read_plan_release(struct read_plan *p);
/* The kernel could not read the pieces (EFAULT): drop the windows, so that they are not used
 * again. */
void read_plan_doubt(struct read_plan *p);
