/* SPDX-License-Identifier: Apache-2.0 */
/* Set of 4 KiB blocks of one partial file that are its own: HP-Mapper's two-level map (section
 * 3.1), one entry per 512 KiB chunk that is "lower", "whole", or a bitmap of 128 blocks. Pure data
 * structure, no lock, no I/O. */
#pragma once

#include "veneer/base/types.h"

struct blkmap;

/* clip: bytes of the lower file that may be seen, at first its size. Block b is *own* when its bit
 * is set or when it starts at or past clip (there the upper file alone speaks, holes being zeros).
 * A block that clip cuts is not own until written. NULL on no memory. */
struct blkmap *blkmap_new(uint64_t clip);
void blkmap_free(struct blkmap *m);

uint64_t blkmap_clip(const struct blkmap *m);
/* Blocks with a set bit below clip. */
uint64_t blkmap_count(const struct blkmap *m);
bool blkmap_is_own(const struct blkmap *m, blk_t blk);
/* Every block below clip is own: nothing of the lower file can be seen any more. */
bool blkmap_is_complete(const struct blkmap *m);
/* Length in blocks, at most max (>= 1), of the run of equal ownership that starts at blk. */
blk_t blkmap_run(const struct blkmap *m, blk_t blk, blk_t max, bool *ret_is_own);

/* Make [blk, blk + n) own. Blocks at or past clip are ignored. 0 or -ENOMEM (nothing changed). */
int blkmap_set(struct blkmap *m, blk_t blk, blk_t n);
/* Have the memory that blkmap_set of this range needs: it cannot fail then. 0 or -ENOMEM. */
int blkmap_reserve(struct blkmap *m, blk_t blk, blk_t n);
/* Make own in dst the blocks of [first, end) that are own in src (NULL: all are) and not in except
 * (NULL: none is). Blocks at or past the clip of any of them stay out. As blkmap_set. */
int blkmap_add(struct blkmap *dst, blk_t first, blk_t end, const struct blkmap *src,
	       const struct blkmap *except);
/* The file was cut to size: clip = min(clip, size), bits of blocks that start at or past the new
 * clip are forgotten. Never grows clip. Cannot fail. */
void blkmap_truncate(struct blkmap *m, uint64_t size);

/* First chunk at or after *chunk that has a set bit; its bits (bit i of bits[i / 64] is block
 * chunk * CHUNK_BLKS + i). False at the end. For writing a snapshot. */
bool blkmap_next_chunk(const struct blkmap *m, uint64_t *chunk, uint64_t bits[2]);
/* Set several bits of one chunk at once. As blkmap_set. */
int blkmap_set_bits(struct blkmap *m, uint64_t chunk, const uint64_t bits[2]);
/* The bits of one chunk, those at or past clip 0. */
void blkmap_bits(const struct blkmap *m, uint64_t chunk, uint64_t ret_bits[2]);
/* Heap bytes held, the allocator's share included: for budgets, statistics and the benchmark. */
size_t blkmap_bytes(const struct blkmap *m);
/* invariants.h */
const char *blkmap_check_invariants(const struct blkmap *m);
