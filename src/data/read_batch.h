/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of one read that are read together, into memory of the caller's; read.c's, for modules that
 * put a read together. */
#pragma once

#include "veneer/data/run.h"
#include "veneer/sys/ring.h"

#define READ_BATCH 32 /* runs submitted together */

/* Starts as { .n = 0 }; ends by read_batch_abandon, which after a finish has nothing to do. */
struct read_batch {
	struct ring_read reads[READ_BATCH];
	struct source *srcs[READ_BATCH]; /* pinned */
	size_t n;
};

/* Have the run read into dst by the next finish, which this may be; zeros are there at once. 0 or
 * -errno. */
int read_batch_add(struct read_batch *b, const struct run *run, void *dst);
/* Read what was added. 0 or -errno; -EIO when a file ends before a run does. */
int read_batch_finish(struct read_batch *b);
/* Let go of what was added and not read. */
void read_batch_abandon(struct read_batch *b);
