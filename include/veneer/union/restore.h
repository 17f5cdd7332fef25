/* SPDX-License-Identifier: Apache-2.0 */
/* Restores the inodes of a dead server, each at its first use. Finds it by its name; an unlinked
 * one by its held descriptor, or in the image. Call lookup_restore (lookup.h). */
#pragma once

#include "veneer/union/inode.h"

/* Resolve an inode, and the directories above it. Results as of lookup_restore. */
int restore_inode(struct union_fs *t, struct inode *i);
/* Resolve all inodes that may be the found object by another name: one file must not have two
 * inodes. 0 or -errno. */
int restore_others(struct union_fs *t, const struct inode_found *found);
