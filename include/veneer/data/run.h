/* SPDX-License-Identifier: Apache-2.0 */
/* A range of a file to the runs that hold its bytes: which file of which layer, or zeros. */
#pragma once

#include "veneer/layer/source.h"

struct run {
	struct source *src; /* NULL: zeros */
	uint64_t off, len; /* in the file and, every layer keeping blocks at their own place, in src
			      too */
};

/* The run that starts at off, at most len (> 0) bytes: walks down the chain of partial files until
 * one owns the block. Nothing is opened, but a file that its map has lost, to see whether it is
 * whole now; if not, -EUCLEAN. 0. */
int run_find(struct source *top, uint64_t off, uint64_t len, struct run *ret);
