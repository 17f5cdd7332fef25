/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of an inode. src/union, src/data, src/passthrough and src/mount alone may include this
 * (contrib/lint: include-struct); the other directories call the functions of inode.h. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/read_pattern.h"
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

/* What leads to an inode. A new name makes any of them NAMED again. */
enum inode_links {
	INODE_NAMED,
	INODE_ORPHAN, /* no name of the union */
	INODE_GONE, /* and the upper file has no link at all */
};

/* What the kernel or a program has of an inode that we do not hear of again; each is set once. */
enum inode_given {
	INODE_GIVEN_NAMES = 1, /* a directory: names of it went out without attributes */
	INODE_GIVEN_PAGES = 2, /* a lower file: its pages (page_fill.h) */
	INODE_GIVEN_OWN_ID = 4, /* a lower file: a node id of this mount's own (shared_sb.h) */
	INODE_GIVEN_MAPPING = 8, /* a mapping that may be stored to */
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
	_Atomic unsigned given; /* set of enum inode_given */
	struct read_pattern reads; /* of a file whose bytes are in several places */

	/* written under the table's lock */
	_Atomic enum inode_stage stage;
	_Atomic enum inode_links links;
	_Atomic uint32_t n_former; /* node ids that it had and the kernel still holds */

	/* guarded by the table's lock */
	uint32_t refs; /* names that have this as parent, and users without a node id */
	struct list_link names;
	struct hlink by_upper;
	struct hlink by_lower; /* while UNRESOLVED in `unresolved` of the table */
	uint32_t *former; /* those, n_former of them */
	struct list_link special; /* in the table's list (inode_each.c), or in none */
	bool is_linked_below; /* a lower file of several names, found by by_lower; stays after
				 copy-up, for callers that saw it before */

	rwlock_t lock;
	/* guarded by lock; what has_upper publishes may be read without it afterwards */
	ino_t upper_ino;
	dev_t upper_dev; /* of a mount, or a subvolume, inside the upper; 0: the upper's own */
	struct image_entry *lower; /* directories: what is merged beneath; others: what is shown, or
				    * what a partial file was copied from. NULL: none */
	struct source
		src; /* of the upper file; src.fd is O_PATH unless a regular file or directory */
	struct upper_dir *dir; /* directories in the upper, once loaded */
	bool is_held; /* upper_hold pinned its descriptor */
	bool has_copy; /* its slot's descriptor is a copy (inode_rollback.h) */
	_Atomic bool
		is_damaged; /* its partial mark fits nothing: data is EIO, until it is cut to 0 */
	_Atomic bool shuns_backing; /* about to become a partial file: no open is passed through */
	_Atomic bool is_synced; /* partial files: fsync since a block became own; a hint, needs no
				   lock */
	_Atomic uint32_t nwrites; /* partial files: by requests; wraps */
	_Atomic uint64_t size_seen; /* partial files: the upper file is at least as long; a hint
				       that a cut lowers first (cow_truncate) */
	_Atomic int sync_error; /* of a sync, until a program is told (cow_fsync); 0: none */
};
