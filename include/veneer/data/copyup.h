/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a lower entry its entry in the upper: for a regular file of more than COPYUP_WHOLE_MAX
 * bytes a sparse shell without data (a partial file), for everything else a copy. */
#pragma once

#include "veneer/union/inode.h"

/* Up to here a file is copied whole when its content changes: as cheap as a shell and its map
 * entry, and other readers of the raw upper see small files as they are (design of record, section
 * 4). */
#define COPYUP_WHOLE_MAX (16u * 1024)

/* Another owner or mode; (uid_t)-1 and so on: as it is. */
struct copyup_attributes {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* The first change of a file, where copying can be spared: the file is put in its place with the
 * change done. */
struct copyup_change {
	bool is_emptied; /* cut to nothing: no content is copied */
	const void *data; /* written at off: a file that is copied whole has it at once */
	size_t len;
	off_t off;
	/* what is copied for a change of attributes or of its name gets no content */
	bool keeps_content;
	bool is_let_through; /* by the quota: what is copied so that something can be removed */
	/* it is about to have another name: its mark says at once where the lower file is */
	bool moves;
	const struct timespec *times; /* as of utimensat(2): set instead of the lower file's */
	/* given to a regular file that has no attributes to adapt to them, nor set-id bits to lose
	 * by them; or NULL */
	const struct copyup_attributes *attributes;
	bool is_done; /* out: the change has been made; not of moves */
	/* out: copied with such a mark, so that partial_mark_fix has nothing to do */
	bool is_marked;
};

/* Make sure that i has an upper entry, its directories first. Does nothing when it has. change may
 * be NULL. Takes i->lock for writing. An unlinked file gets a nameless one. 0; -EROFS without an
 * upper; -EIO if damaged; -errno. */
int copyup_inode(struct union_fs *t, struct inode *i, struct copyup_change *change);
/* A complete copy of what a regular file shows, without a name; i stays what it is, and takes no
 * request. *ret_fd: O_RDWR. 0; -EIO if damaged; -errno. */
int copyup_nameless(struct union_fs *t, struct inode *i, int *ret_fd);
/* A name of i is about to go: if it is a hard-linked lower file of which other names are seen, it
 * is copied up under all of them, so that their link count stays right. What lookup_state said of
 * the name may be old afterwards. */
int copyup_settle_links(struct union_fs *t, struct inode *i);
