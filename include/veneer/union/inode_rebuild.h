/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the inode table for the next opening of a mount while requests are answered.
 * inode_table_attach needs a microsecond per inode, during which programs would wait. Slots that
 * change meanwhile are recorded (node_table_touch_begin), and only their inodes are made while
 * requests wait. */
#pragma once

#include "veneer/union/inode.h"

struct inode_rebuild;

/* Build the table. Requests may be answered; takes the table's lock for short times. 0; -ENOMEM;
 * -EAGAIN: only inode_table_attach can do it. */
int inode_rebuild_begin(struct union_fs *t, struct inode_rebuild **ret);
/* Give up while t goes on; b remains for inode_rebuild_free. */
void inode_rebuild_cancel(struct union_fs *t);
/* Call when no request is answered and no job runs. Like inode_table_leave, but the node table and
 * descriptors go to b. 0; -ENOMEM or -EAGAIN: t is unchanged, and needs inode_rebuild_cancel. */
int inode_rebuild_leave(struct inode_rebuild *b, struct union_fs *t);
/* Like inode_table_attach, of the table that was left. 0, or -errno of inode_rollback_settle:
 * nothing was attached. */
int inode_rebuild_attach(struct inode_rebuild *b, struct union_fs *t);
/* Does b hold a table that was left and not attached? */
bool inode_rebuild_has_left(const struct inode_rebuild *b);
/* Hand out that table's memory files, for inode_table_attach. */
void inode_rebuild_give_up(struct inode_rebuild *b, int *ret_slots, int *ret_names);
/* Takes time in proportion to the number of inodes. NULL: does nothing. */
void inode_rebuild_free(struct inode_rebuild *b);
