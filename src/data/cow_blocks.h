/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a partial file that become own, and the map's record of them. */
#pragma once

#include "veneer/union/inode.h"

#define BLK_START(off) ((uint64_t)(off) & ~(uint64_t)(BLK_BYTES - 1))
#define BLK_END(off)   (((uint64_t)(off) + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1))

/* A partial file that is being changed: its lock is held for writing, its descriptor pinned. */
struct cow_file {
	struct union_fs *tree;
	struct inode *inode;
	int fd;
	uint64_t size; /* before the change */
};

/* Set f->size, once the other fields are. */
int cow_blocks_find_size(struct cow_file *f);
/* Is all of it own? Any lock. False after an error, too: *ret_error is 0 or it. */
bool cow_blocks_all_own(struct inode *i, uint64_t off, uint64_t len, int *ret_error);
/* Cut the record to this size, if it is longer. */
int cow_blocks_settle_clip(struct inode *i, uint64_t size);
/* Before the file grows: no earlier cut of it is forgotten then. */
int cow_blocks_settle_growth(const struct cow_file *f);
/* Copy the blocks of [first, end) that are not own from below, byte range clipped to size, by
 * chunks at most: that is what buf holds. The caller reserves and records. */
int cow_blocks_fill(const struct cow_file *f, blk_t first, blk_t end, char *buf);
/* For the counters, before [first, end) becomes own: what of it is seen from below, and was thus
 * taken from there where the data at off does not cover it. */
void cow_blocks_count(const struct cow_file *f, blk_t first, blk_t end, uint64_t off, uint64_t len);
/* Write, and record what is own by it: the blocks of the data and those that it takes along. */
int cow_blocks_write(const struct cow_file *f, const char *p, size_t len, uint64_t off);
