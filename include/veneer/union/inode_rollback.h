/* SPDX-License-Identifier: Apache-2.0 */
/* Node ids of a mount that is rolled back to a snapshot. A file that looks different there and may
 * be open gets a nameless copy of its present content (inode_rollback_keep), to which its node ids
 * lead from then on. Every other object is found by its name and number in the rolled-back mount.
 * Both apply only if the chain of snapshots has changed, so the next attach of the node table
 * decides it, by this or by another server. */
#pragma once

#include "veneer/union/inode.h"

/* Call when no request of the mount is answered and no named inode is held by a descriptor. kept:
 * the snapshot that a rollback adds to the chain. */
void inode_rollback_begin(struct union_fs *t, uint64_t kept);
/* fd is a copy of i's content, and is taken over. */
void inode_rollback_keep(struct union_fs *t, struct inode *i, int fd);
/* The path by which i will be looked for, malloc'd: its name in the node table, or without one its
 * path in the image. NULL: none, or no memory. */
char *inode_rollback_path(struct union_fs *t, struct inode *i);
/* There is no rollback. Closes the copies. */
void inode_rollback_cancel(struct union_fs *t);

/* Complete or cancel the rollback in a node table that was just attached. 0 or -errno. */
int inode_rollback_settle(struct union_fs *t);
/* Has the mount been rolled back, without the kernel knowing yet? */
bool inode_rollback_is_unsaid(struct union_fs *t);
/* Call fn for each name that the kernel may have cached, with the table's lock held. Also before
 * the rollback, when all names of an inode are known. name is borrowed and ends after len bytes. */
void inode_rollback_each_name(struct union_fs *t,
			      void (*fn)(void *arg, uint32_t parent, const char *name, size_t len),
			      void *arg);
/* The kernel knows. */
void inode_rollback_end(struct union_fs *t);
