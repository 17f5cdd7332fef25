/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the inode table: inode.c keeps it, inode_names.c leads to what is in it,
 * inode_load.c fills it from what a dead server left. */
#pragma once

#include "veneer/union/inode_struct.h"

#define INODE_TABLE_SPARE_NAMES 2 /* what an exchange of two names takes */

struct inode_table {
	mutex_t lock;
	GUARDED_BY(lock) struct htab names; /* struct name by (parent, name) */
	/* struct inode by inode number in the upper; non-directories */
	GUARDED_BY(lock) struct htab by_upper;
	/* struct inode by layer and inode number of a hard-linked lower file */
	GUARDED_BY(lock) struct htab by_lower;
	/* where memory is short (inode_reserve) */
	GUARDED_BY(lock) void *spare_names[INODE_TABLE_SPARE_NAMES], *spare_inode;
	/* struct inode, no directories: inode_find_unresolved */
	GUARDED_BY(lock) struct htab unresolved;
	_Atomic size_t n_unresolved; /* written under lock */
	GUARDED_BY(lock) struct list_link special; /* struct inode: inode_each.c */
};

struct name {
	struct hlink link; /* in names of the table */
	struct list_link of_inode;
	struct inode *parent, *inode;
	char name[];
};

/* An empty table. NULL: no memory. */
struct inode_table *inode_table_make(void);
/* The parts of a mount that go with it, where it is set. */
void inode_table_prepare(struct union_fs *t);
/* Free inodes, names and the table, but not what goes with it. The descriptors of inodes that are
 * held are elsewhere by now, or closed. */
void inode_table_free_objects(struct union_fs *t);
/* Of a mount that goes: what inode_table_prepare made. */
void inode_table_end(struct union_fs *t);
/* Number devices as the server before did. */
void inode_table_number_alike(struct union_fs *t);
/* A set of enum inode_given: what may have been. */
unsigned inode_given_by_slot(const struct node_slot *s);
/* An unresolved inode for a slot that is in use, or the root. 0 or -ENOMEM. */
int inode_make_unresolved(struct union_fs *t, uint32_t id);
/* Give an unresolved inode the name that its slot has. 0 or -ENOMEM. */
int inode_name_unresolved(struct union_fs *t, struct inode *i);
/* Enter it in `unresolved` of the table, unless it is a directory. 0 or -ENOMEM. */
int inode_list_unresolved(struct union_fs *t, struct inode *i);
/* An inode for a slot that is in use. NULL: no memory. */
struct inode *inode_for_slot(struct union_fs *t, uint32_t id);
/* Enter a name in memory alone. 0 or -ENOMEM. */
int inode_link_name(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		    size_t len);
/* Under which an unresolved inode is in `unresolved` of the table. */
uint64_t inode_unresolved_key(const struct node_slot *s);
/* Free one that nothing leads to. */
void inode_free(struct union_fs *t, struct inode *i);
/* Take down an inode that nobody needs: not referenced, and not held by the kernel. */
void inode_drop_unheld(struct union_fs *t, struct inode *i);

/* The slot of a former node id leads to the inode. 0 or -ENOMEM. */
int inode_add_former_locked(struct union_fs *t, struct inode *i, uint32_t id);
/* No more. */
void inode_drop_former_locked(struct union_fs *t, struct inode *i, uint32_t id);
/* The id is given to another inode from now on. */
void inode_release_id_locked(struct union_fs *t, uint32_t id);

/* For inode_names.c and inode_resolve.c; all under the table's lock. */
/* A new inode of what was found. NULL: no memory. */
struct inode *inode_make_locked(struct union_fs *t, const struct inode_found *f);
void inode_unref_locked(struct union_fs *t, struct inode *i, struct hlink **free_list);
/* If nobody needs it any more; what it takes along, too. */
void inode_unlink_dead_locked(struct union_fs *t, struct inode *i, struct hlink **free_list);
struct inode *inode_by_upper_locked(struct union_fs *t, const struct inode_found *f);
struct inode *inode_by_lower_locked(struct union_fs *t, struct image_entry *e);
uint64_t inode_lower_hash(const struct image_entry *e);
void inode_enter_by_upper_locked(struct union_fs *t, struct inode *i);
void inode_remove_name_locked(struct union_fs *t, struct name *n, struct hlink **free_list);
/* Take over what was found; it is published by has_upper, last. */
void inode_take_found(struct inode *i, const struct inode_found *f);
/* Note in the slot how to find an inode that has no name any more, or is about to lose the last;
 * unresolved_path if it is unresolved. */
void inode_note_orphan_locked(struct union_fs *t, struct inode *i, const char *unresolved_path);
/* It has no name any more. */
void inode_note_nameless_locked(struct union_fs *t, struct inode *i);
/* If it is special now (inode_each_special). */
void inode_note_special_locked(struct union_fs *t, struct inode *i);
/* Without the lock: free what has died. */
void inode_free_unlinked(struct union_fs *t, struct hlink *free_list);
/* Resolve an inode from what was found at its name. -ESTALE: that is something else. */
int inode_resolve_named_locked(struct union_fs *t, struct inode *i, const struct inode_found *f);
