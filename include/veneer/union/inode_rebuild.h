/* SPDX-License-Identifier: Apache-2.0 */
/* The inode table of a mount as its next opening will have it, made while requests are answered:
 * what inode_table_attach makes of the node table takes a microsecond an inode, which programs
 * would wait for. Slots that change meanwhile are noted (node_table_touch_begin), and the inodes of
 * those alone are made when requests wait. */
#pragma once

#include "veneer/union/inode.h"

struct inode_rebuild;

/* Make it. Requests may be answered, the lock of the table is taken for short times. 0, -ENOMEM, or
 * -EAGAIN: only inode_table_attach can. */
int inode_rebuild_begin(struct union_fs *t, struct inode_rebuild **ret);
/* Give up while t goes on; what was made is still there. */
void inode_rebuild_cancel(struct union_fs *t);
/* No request is answered and no job runs: like inode_table_leave, but node table and descriptors go
 * to b. 0; -ENOMEM or -EAGAIN, and t is as it was, but for what cancel is for. */
int inode_rebuild_leave(struct inode_rebuild *b, struct union_fs *t);
/* Like inode_table_attach, of what was left. 0, or -errno of inode_rollback_settle: nothing was
 * attached. */
int inode_rebuild_attach(struct inode_rebuild *b, struct union_fs *t);
/* Has it what nobody attached? */
bool inode_rebuild_has_left(const struct inode_rebuild *b);
/* That, for inode_table_attach. */
void inode_rebuild_give_up(struct inode_rebuild *b, int *ret_slots, int *ret_names);
/* Takes as long as there were inodes. NULL: nothing. */
void inode_rebuild_free(struct inode_rebuild *b);
