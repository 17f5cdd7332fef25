/* SPDX-License-Identifier: Apache-2.0 */
/* What a partial file of the upper says of the lower file under its holes. */
#pragma once

#include "veneer/layer/partial_xattr.h"
#include "veneer/union/inode.h"

/* Make the empty file behind fd a partial one, as i's: full size, no data, its map entry, its mark
 * and its guard. has_path: the mark says where the lower file is, also where that is its own place.
 * st is the lower file's, up has the owner and mode that the file is to have. Under i->lock. */
int partial_mark_make(struct union_fs *t, struct inode *i, int fd, bool has_path,
		      const struct stat *st, const struct stat *up);
/* A copy of another file: of which, its source and its stat; and the size that the copy begins
 * with, at most that of the other. */
struct partial_mark_copy {
	const struct image_entry *of;
	struct source *src;
	const struct stat *st;
	uint64_t size;
};

/* Make the empty file behind fd, i's, such a copy, by a mark that leads there, without data. The
 * size comes last, so that a server that is killed here leaves an empty file. Under i->lock. 0 or
 * -errno: the file is as it was, or, if its mark could not be taken away again, a partial one
 * without content. */
int partial_mark_make_copy(struct union_fs *t, struct inode *i, int fd,
			   const struct partial_mark_copy *c);
/* Write a mark, and before it its seal if it has a path: at its own place what it leads to is read
 * by the same users. A path twice may be more than a file system has room for, 4 KiB for all
 * attributes on ext4: a mark that is followed without a seal (is_covered) then goes without. 0 or
 * -errno. */
int partial_mark_write(const struct whiteout_style *style, int fd, const struct partial_xattr *m,
		       bool is_covered);
/* Guard a file that has its mark. 0 or -errno, after some of which the file is as good without. */
int partial_mark_guard(const struct whiteout_style *style, int fd);
bool partial_mark_needs_no_guard(int r);
/* The partial file is about to be seen under another name (attributes: NULL), or to get these
 * attributes: write into its mark where the file under its holes is, with a seal, unless its mark
 * is believed as it is. Does nothing for files that are not partial. Takes i->lock. 0; -ENOSPC,
 * -E2BIG where the path has no room and the mark is not believed without its seal; -errno. */
int partial_mark_fix(struct union_fs *t, struct inode *i, const struct stat *attributes);
