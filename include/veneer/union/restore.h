/* SPDX-License-Identifier: Apache-2.0 */
/* Restores the inodes of a dead server. Each is looked for when it is first asked for: by its name;
 * an unlinked one by the descriptor that was held, or in the image. Call lookup_restore
 * (lookup.h). */
#pragma once

#include "veneer/union/inode.h"

/* Resolve an inode, and the directories above it. As lookup_restore. */
int restore_inode(struct union_fs *t, struct inode *i);
/* Resolve the inodes that may be what was found by another name: there must not be two of one
 * file. 0 or -errno. */
int restore_others(struct union_fs *t, const struct inode_found *found);
