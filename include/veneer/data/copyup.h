/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a lower entry its entry in the upper: a regular file of more than COPYUP_WHOLE_MAX bytes
 * gets a sparse file without data (a partial file), everything else a copy. */
#pragma once

#include "veneer/union/inode.h"

/* A file up to this size is copied whole when its content changes. That costs no more than a
 * partial file and its map entry, and programs that read the raw upper see small files
 * unchanged. */
#define COPYUP_WHOLE_MAX (16u * 1024)

/* A new owner or mode; -1 leaves a value unchanged. */
struct copyup_attributes {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* The first change of a file, applied to the copy before it is placed, so that copying is
 * spared. */
struct copyup_change {
	bool is_emptied; /* truncated to 0: no content is copied */
	/* written at off: a file that is copied whole contains it from the start */
	const void *data;
	size_t len;
	off_t off;
	/* a change of attributes or of the name: no content is copied */
	bool keeps_content;
	bool is_let_through; /* exempt from the quota: the copy serves a removal */
	/* a rename follows: the mark states the path of the lower file at once */
	bool moves;
	const struct timespec *times; /* as for utimensat(2); set instead of the lower file's */
	/* Applied to a regular file without extended attributes and set-id bits, which such a
	 * change would alter; or NULL. */
	const struct copyup_attributes *attributes;
	bool is_done; /* out: the change has been applied; not set for moves */
	/* out: the mark states the path, so partial_mark_fix has nothing to do */
	bool is_marked;
};

/* Make sure that i and its directories have upper entries; does nothing if i has one. change may be
 * NULL. Takes i->lock for writing. An unlinked file gets a nameless upper file. 0; -EROFS without
 * an upper; -EIO if damaged; -errno. */
int copyup_inode(struct union_fs *t, struct inode *i, struct copyup_change *change);
/* A complete, nameless copy of a regular file's content. i itself does not change and must receive
 * no request meanwhile. *ret_fd: O_RDWR. 0; -EIO if damaged; -errno. */
int copyup_nameless(struct union_fs *t, struct inode *i, int *ret_fd);
/* Called before a name of i is removed. A hard-linked lower file with other visible names is copied
 * up under all of them, so that their link count stays right. A lookup_state of the name from
 * before this call may be outdated. */
int copyup_settle_links(struct union_fs *t, struct inode *i);
