/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel holds of a mount that goes back to a snapshot. Files that look different there
 * and may be open get a nameless copy of what they are (inode_rollback_keep), which their node ids
 * lead to from then on; everything else is found by its name and number in what the mount shows
 * then. Both depends on whether the chain of snapshots has changed, so it is decided when the node
 * table is attached the next time, by this or by another server. */
#pragma once

#include "veneer/union/inode.h"

/* No request of the mount is answered, and no inode with a name is held by a descriptor. kept: the
 * snapshot that will be in the chain if it goes back. */
void inode_rollback_begin(struct union_fs *t, uint64_t kept);
/* fd is what i shows, and is taken over. */
void inode_rollback_keep(struct union_fs *t, struct inode *i, int fd);
/* The path by which i will be looked for, malloc'd: its name in the node table, or for what has
 * none its path in the image. NULL: there is none, or no memory. */
char *inode_rollback_path(struct union_fs *t, struct inode *i);
/* It does not go back. Closes what was kept. */
void inode_rollback_cancel(struct union_fs *t);

/* Of a node table that was just attached: carry out or take back what was begun. 0 or -errno. */
int inode_rollback_settle(struct union_fs *t);
/* It went back, and the kernel does not know yet: */
bool inode_rollback_is_unsaid(struct union_fs *t);
/* call fn for each name that it may have, with the table's lock held; also before it goes back,
 * when all names of an inode are known. name is borrowed and ends after len bytes. */
void inode_rollback_each_name(struct union_fs *t,
			      void (*fn)(void *arg, uint32_t parent, const char *name, size_t len),
			      void *arg);
/* Now it knows. */
void inode_rollback_end(struct union_fs *t);
