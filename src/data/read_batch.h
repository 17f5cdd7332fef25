/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that one read fetches together, into memory of the caller; for read.c and modules that
 * assemble a read. */
#pragma once

#include "veneer/data/run.h"
#include "veneer/sys/ring.h"

#define READ_BATCH 32 /* runs submitted together */

/* Start with { .n = 0 }, end with read_batch_abandon, which does nothing after a finish. */
struct read_batch {
	struct ring_read reads[READ_BATCH];
	struct source *srcs[READ_BATCH]; /* pinned */
	size_t n;
};

/* Queue the run to be read into dst by the next read_batch_finish, which a full batch calls here.
 * Zeros are written at once. 0 or -errno. */
int read_batch_add(struct read_batch *b, const struct run *run, void *dst);
/* Read the queued runs. 0 or -errno; -EIO if a file ends before a run does. */
int read_batch_finish(struct read_batch *b);
/* Unpin the queued runs that were not read. */
void read_batch_abandon(struct read_batch *b);
