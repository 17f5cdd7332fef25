/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of an inode. src/union, src/data, src/passthrough and src/mount alone may include this
 * (contrib/lint: include-struct); the other directories call the functions of inode.h. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/union/inode.h"

/* How much of an inode is known:
 *
 *	inode_make_locked ------------------------------------------> RESOLVED
 *	inode_table_attach --> UNRESOLVED -- inode_resolve, --------> RESOLVED
 *	                           |         inode_resolve_orphan,
 *	                           |         inode_enter
 *	                           `-------- inode_mark_stale ------> STALE
 *
 * A thread that found the file before another gave it up makes a STALE one RESOLVED
 * (inode_resolve_orphan). Each step is one store under the table's lock. What inode->lock guards
 *counts in RESOLVED alone, and the names of such an inode are in directories that are RESOLVED. */
enum inode_stage {
	INODE_RESOLVED,
	INODE_UNRESOLVED, /* left by a server that is dead: its node slot is known so far, and at
			     most one name, perhaps in a directory that is unresolved too */
	INODE_STALE, /* its file cannot be found */
};

struct inode {
	/* Node id, and with generation unique for the life of the mount. Of a regular file both may
	 * change (inode_renumber), under the table's lock: what the kernel is told comes from
	 * inode_grant. */
	_Atomic uint32_t id;
	uint32_t generation;
	uint8_t type; /* DT_*; constant */
	_Atomic bool has_upper; /* false to true once, under lock */
	_Atomic uint16_t changing; /* changes under way that cost it set-id bits or capabilities
				      (attr_change_begin) */
	uint64_t ino; /* st_ino as presented; constant */
	_Atomic bool is_orphan; /* it has no name; written under the table's lock */
	_Atomic uint32_t n_former; /* node ids that it had and the kernel still holds; likewise */
	_Atomic bool is_listed_names_only; /* a directory: names of it went out without attributes;
					      false to true */
	_Atomic bool is_filled; /* a lower file whose pages the kernel was given (page_fill.h);
				   false to true */
	_Atomic bool is_private; /* a lower file that has a node id of this mount's own
				    (shared_sb.h); false to true */
	_Atomic bool is_mapped_past_us; /* may be stored to through a mapping that we never hear of;
					   false to true */

	_Atomic enum inode_stage stage; /* written under the table's lock */

	/* guarded by the table's lock */
	uint32_t refs; /* names that have this as parent, and users without a node id */
	struct list_link names;
	struct hlink by_upper;
	bool is_in_by_upper;
	struct hlink by_lower; /* from when it was lower; stays after copy-up, for callers that saw
				  it before */
	bool is_in_by_lower; /* while UNRESOLVED in `unresolved` of the table, by the same link */

	rwlock_t lock;
	/* guarded by lock; what has_upper publishes may be read without it afterwards */
	ino_t upper_ino;
	dev_t upper_dev; /* of a mount, or a subvolume, inside the upper; 0: the upper's own */
	struct image_entry *lower; /* directories: what is merged beneath; others: what is shown, or
				    * what a partial file was copied from. NULL: none */
	struct source
		src; /* of the upper file; src.fd is O_PATH unless a regular file or directory */
	struct upper_dir *dir; /* directories in the upper, once loaded */
	bool is_gone; /* the last link of the upper file was removed */
	bool is_held; /* upper_hold pinned its descriptor */
	_Atomic bool
		is_damaged; /* its partial mark fits nothing: data is EIO, until it is cut to 0 */
	bool has_default_acl; /* directories in the upper; meaningful once dir is loaded */
	_Atomic bool is_synced; /* partial files: fsync since a block became own; a hint, needs no
				   lock */
	_Atomic int sync_error; /* of a sync, until a program is told (cow_fsync); 0: none */
};
