/* SPDX-License-Identifier: Apache-2.0 */
/* Making one partial file of an upper whole, in place: the same inode, its names and attributes as they were. */
#pragma once

#include "veneer/inode.h"

/* Write what the upper file does not have of its own from below into it. What it shows does not change at any moment.
 * copied(arg, n) is called for each piece. 0, -EIO when what is below cannot be read, other -errno. */
int fill_file(struct tree *t, struct inode *i, void (*copied)(void *arg, uint64_t n), void *arg);
/* All blocks are its own, and on the disk: an ordinary file from now on. 0 or -errno. */
int fill_finish(struct tree *t, struct inode *i);
