/* SPDX-License-Identifier: Apache-2.0 */
/* A range of a file to the runs that hold its bytes: which file of which layer, or zeros. */
#pragma once

#include "veneer/layer/source.h"

struct run {
	struct source *src; /* NULL: zeros */
	/* in the file and in src: every layer keeps blocks at their own offset */
	uint64_t off, len;
};

/* Find the run of at most len (> 0) bytes that starts at off: walks down the chain of partial files
 * to the one that owns the block. Opens no file, except one that its map does not know, to see
 * whether it is whole now; if not, -EUCLEAN. 0. */
int run_find(struct source *top, uint64_t off, uint64_t len, struct run *ret);
