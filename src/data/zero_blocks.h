/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the map which own blocks of a partial file hold nothing but zeros (mapfile_own_zeros). All
 * under the inode's lock; fd is the file's. 0 or -errno. */
#pragma once

#include "veneer/union/inode.h"

/* Before len bytes of p are written at off: blocks that are own already and will be zeros then. */
int zero_blocks_expect(struct inode *i, int fd, const void *p, size_t len, uint64_t off);
/* After it: a block that is zeros now is noted, and own. */
int zero_blocks_note(struct inode *i, int fd, const void *p, size_t len, uint64_t off);
/* Likewise what is in [off, end), by any writer; off is the start of a block. */
int zero_blocks_note_range(struct inode *i, int fd, uint64_t off, uint64_t end);
