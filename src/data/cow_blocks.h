/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a partial file that become own, and their records in the map. */
#pragma once

#include "veneer/union/inode.h"

#define BLK_START(off) ((uint64_t)(off) & ~(uint64_t)(BLK_BYTES - 1))
#define BLK_END(off)   (((uint64_t)(off) + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1))

/* A partial file that is being changed; its lock is held for writing, its descriptor is pinned. */
struct cow_file {
	struct union_fs *tree;
	struct inode *inode;
	int fd;
	uint64_t size; /* before the change */
};

/* Set f->size; the other fields are set. */
int cow_blocks_find_size(struct cow_file *f);
/* Are all blocks of the range own? Under i->lock for reading or writing. False also after an error:
 * *ret_error is then -errno, else 0. */
bool cow_blocks_all_own(struct inode *i, uint64_t off, uint64_t len, int *ret_error);
/* Cut the clip in the map to size, if it is longer. */
int cow_blocks_settle_clip(struct inode *i, uint64_t size);
/* Call before the file grows: makes sure that no earlier truncation of it is lost. */
int cow_blocks_settle_growth(const struct cow_file *f);
/* Copy the blocks of [first, end) that are not own from the lower file, up to the size of the file.
 * Reads at most a chunk at a time, the size of buf. The caller reserves room and records the
 * blocks. */
int cow_blocks_fill(const struct cow_file *f, blk_t first, blk_t end, char *buf);
/* Update the statistics before [first, end) becomes own: the bytes that were copied from the lower
 * file are those outside the written data [off, off + len). */
void cow_blocks_count(const struct cow_file *f, blk_t first, blk_t end, uint64_t off, uint64_t len);
/* Write, and record as own its blocks, including the neighbours that choose_blocks adds. */
int cow_blocks_write(const struct cow_file *f, const char *p, size_t len, uint64_t off);
