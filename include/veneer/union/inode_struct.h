/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of an inode. Only src/union, src/data, src/passthrough and src/mount may include this
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
 * (inode_resolve_orphan). Each step is one store under the table's lock. Fields
 * that inode->lock guards are valid in RESOLVED alone, and the names of such an inode are in
 * directories that are RESOLVED. */
enum inode_stage {
	INODE_RESOLVED,
	/* left by a dead server: only its node slot is known, and at most one name, perhaps in an
	 * unresolved directory */
	INODE_UNRESOLVED,
	INODE_STALE, /* its file cannot be found */
};

/* The names and links of an inode. A new name makes any inode NAMED again. */
enum inode_links {
	INODE_NAMED,
	INODE_ORPHAN, /* no name of the union */
	INODE_GONE, /* and the upper file has no link at all */
};

/* Things that the kernel or a program got of an inode and may use without asking again; each is set
 * once. */
enum inode_given {
	INODE_GIVEN_NAMES = 1, /* a directory: a listing gave names without attributes */
	INODE_GIVEN_PAGES = 2, /* a lower file: its pages (page_fill.h) */
	INODE_GIVEN_OWN_ID = 4, /* a lower file: a node id of this mount's own (shared_sb.h) */
	INODE_GIVEN_MAPPING = 8, /* a writable mapping */
};

struct inode {
	/* Node id; unique with generation for the life of the mount. Both of a regular file may
	 * change (inode_renumber), under the table's lock: replies to the kernel take them from
	 * inode_grant. */
	_Atomic uint32_t id;
	uint32_t generation;
	uint8_t type; /* DT_*; constant */
	_Atomic bool has_upper; /* false to true once, under lock */
	/* changes under way that clear set-id bits or capabilities (attr_change_begin) */
	_Atomic uint16_t changing;
	uint64_t ino; /* st_ino as shown; constant */
	_Atomic unsigned given; /* set of enum inode_given */
	struct read_pattern reads; /* of a file whose bytes are in several files */

	/* written under the table's lock */
	_Atomic enum inode_stage stage;
	_Atomic enum inode_links links;
	_Atomic uint32_t n_former; /* former node ids that the kernel still holds */

	/* guarded by the table's lock */
	uint32_t refs; /* names with this inode as parent, and users without a node id */
	struct list_link names;
	struct hlink by_upper;
	struct hlink by_lower; /* while UNRESOLVED in `unresolved` of the table */
	uint32_t *former; /* the former ids, n_former of them */
	struct list_link special; /* in the table's list (inode_each.c), or in none */
	/* a lower file with several names, found by by_lower; stays set after copy-up, for callers
	 * that saw it before */
	bool is_linked_below;

	rwlock_t lock;
	/* guarded by lock; fields that has_upper publishes may be read without it afterwards */
	ino_t upper_ino;
	dev_t upper_dev; /* of a mount or a subvolume inside the upper; 0: the upper's own */
	/* directories: the lower directory merged with it; others: the lower entry shown, or the
	 * source of a partial file. NULL: none */
	struct image_entry *lower;
	struct source
		src; /* of the upper file; src.fd is O_PATH unless a regular file or directory */
	struct upper_dir *dir; /* directories in the upper, once loaded */
	bool is_held; /* upper_hold pinned its descriptor */
	bool has_copy; /* its slot's descriptor is a copy (inode_rollback.h) */
	/* its partial mark fits nothing: reads are EIO until it is truncated to 0 */
	_Atomic bool is_damaged;
	_Atomic bool shuns_backing; /* about to become partial: no open is passed through */
	/* partial files: an fsync came after the last block became own; a hint, needs no lock */
	_Atomic bool is_synced;
	_Atomic bool is_name_synced; /* by this server, for a program (cow_fsync) */
	_Atomic uint32_t nwrites; /* partial files: write requests; wraps */
	/* partial files: the upper file is at least this long; a hint that a truncation lowers
	 * first (cow_truncate) */
	_Atomic uint64_t size_seen;
	_Atomic int sync_error; /* a failed sync, until a program is told (cow_fsync); 0: none */
};
