/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the inode table: inode.c maintains it, inode_names.c maps names to inodes,
 * inode_load.c fills it from the table of a dead server. */
#pragma once

#include "veneer/union/inode_struct.h"

#define INODE_TABLE_SPARE_NAMES 2 /* for an exchange of two names */

struct inode_table {
	mutex_t lock;
	GUARDED_BY(lock) struct htab names; /* struct name by (parent, name) */
	/* struct inode by inode number in the upper; non-directories */
	GUARDED_BY(lock) struct htab by_upper;
	/* struct inode by layer and inode number of a hard-linked lower file */
	GUARDED_BY(lock) struct htab by_lower;
	/* used when memory is short (inode_reserve) */
	GUARDED_BY(lock) void *spare_names[INODE_TABLE_SPARE_NAMES], *spare_inode;
	/* struct inode, except directories: inode_find_unresolved */
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
/* Initialize the parts of a mount that belong to an inode table. */
void inode_table_prepare(struct union_fs *t);
/* Free inodes, names and the table, but not the parts of inode_table_prepare. Descriptors of held
 * inodes must have been moved elsewhere, or are closed. */
void inode_table_free_objects(struct union_fs *t);
/* Release the parts that inode_table_prepare initialized. */
void inode_table_end(struct union_fs *t);
/* Encode devices in inode numbers as the server before did. */
void inode_table_number_alike(struct union_fs *t);
/* The set of enum inode_given that the slot's inode may have. */
unsigned inode_given_by_slot(const struct node_slot *s);
/* Make an unresolved inode for a slot that is in use, or the root. 0 or -ENOMEM. */
int inode_make_unresolved(struct union_fs *t, uint32_t id);
/* Give an unresolved inode the name in its slot. 0 or -ENOMEM. */
int inode_name_unresolved(struct union_fs *t, struct inode *i);
/* Enter it in `unresolved` of the table, unless it is a directory. 0 or -ENOMEM. */
int inode_list_unresolved(struct union_fs *t, struct inode *i);
/* Allocate an inode for a slot that is in use. NULL: no memory. */
struct inode *inode_for_slot(struct union_fs *t, uint32_t id);
/* Enter a name in memory only. 0 or -ENOMEM. */
int inode_link_name(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		    size_t len);
/* The key of an unresolved inode in `unresolved` of the table. */
uint64_t inode_unresolved_key(const struct node_slot *s);
/* Free an inode that nothing refers to. */
void inode_free(struct union_fs *t, struct inode *i);
/* Remove an inode that is neither referenced nor held by the kernel. */
void inode_drop_unheld(struct union_fs *t, struct inode *i);

/* Make the slot of a former node id lead to the inode. 0 or -ENOMEM. */
int inode_add_former_locked(struct union_fs *t, struct inode *i, uint32_t id);
/* Undo that. */
void inode_drop_former_locked(struct union_fs *t, struct inode *i, uint32_t id);
/* Free the id for another inode. */
void inode_release_id_locked(struct union_fs *t, uint32_t id);

/* For inode_names.c and inode_resolve.c; all under the table's lock. */
/* Make a new inode from a lookup. NULL: no memory. */
struct inode *inode_make_locked(struct union_fs *t, const struct inode_found *f);
void inode_unref_locked(struct union_fs *t, struct inode *i, struct hlink **free_list);
/* Unlink an inode that has no user any more, and directories that lose their last user by that. */
void inode_unlink_dead_locked(struct union_fs *t, struct inode *i, struct hlink **free_list);
struct inode *inode_by_upper_locked(struct union_fs *t, const struct inode_found *f);
struct inode *inode_by_lower_locked(struct union_fs *t, struct image_entry *e);
uint64_t inode_lower_hash(const struct image_entry *e);
void inode_enter_by_upper_locked(struct union_fs *t, struct inode *i);
void inode_remove_name_locked(struct union_fs *t, struct name *n, struct hlink **free_list);
/* Copy the fields of a lookup into the inode; the store of has_upper, which comes last, publishes
 * them. */
void inode_take_found(struct inode *i, const struct inode_found *f);
/* Record in the slot how to find an inode that has no name, or is about to lose its last.
 * unresolved_path: the path of an unresolved inode. */
void inode_note_orphan_locked(struct union_fs *t, struct inode *i, const char *unresolved_path);
/* The inode has no name any more. */
void inode_note_nameless_locked(struct union_fs *t, struct inode *i);
/* Enter the inode in the list of inode_each_special, if it belongs there now. */
void inode_note_special_locked(struct union_fs *t, struct inode *i);
/* Free the unlinked inodes, without the lock. */
void inode_free_unlinked(struct union_fs *t, struct hlink *free_list);
/* Resolve an inode from the object found at its name. -ESTALE: that is another object. */
int inode_resolve_named_locked(struct union_fs *t, struct inode *i, const struct inode_found *f);

/* invariants.h; i: the inode that changed, which is referenced, or NULL. */
const char *inode_check_invariants(struct union_fs *t, struct inode *i) REQUIRES(t->inodes->lock);
