/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the map which own blocks of a partial file contain only zeros (mapfile_own_zeros). All
 * functions: under the inode's lock; fd is the inode's upper file; 0 or -errno. */
#pragma once

#include "veneer/union/inode.h"

/* Before len bytes of p are written at off: note the own blocks that will be zeros. */
int zero_blocks_expect(struct inode *i, int fd, const void *p, size_t len, uint64_t off);
/* After the write: record blocks that are zeros now, as own and zero. */
int zero_blocks_note(struct inode *i, int fd, const void *p, size_t len, uint64_t off);
/* Record the zero blocks in [off, end), by any writer; off is the start of a block. */
int zero_blocks_note_range(struct inode *i, int fd, uint64_t off, uint64_t end);
