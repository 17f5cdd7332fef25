/* SPDX-License-Identifier: Apache-2.0 */
/* The mark of a partial file in the upper, which names the lower file under its holes. */
#pragma once

#include "veneer/layer/partial_xattr.h"
#include "veneer/union/inode.h"

/* Make the empty file behind fd, the upper file of i, partial: full size, no data, map entry, mark
 * and guard. has_path: the mark states the path of the lower file even if it is the file's own
 * path. st is of the lower file; up has the owner and mode that the file will get. Under i->lock. 0
 * or -errno. */
int partial_mark_make(struct union_fs *t, struct inode *i, int fd, bool has_path,
		      const struct stat *st, const struct stat *up);
/* A copy of another file: its image entry, source and stat, and the initial size of the copy, at
 * most that of the other. */
struct partial_mark_copy {
	const struct image_entry *of;
	struct source *src;
	const struct stat *st;
	uint64_t size;
};

/* Make the empty file behind fd, the upper file of i, such a copy: a mark with the path and no
 * data. The size comes last, so that a server that is killed here leaves an empty file. Under
 * i->lock. 0. -errno: the file is unchanged, or, if its mark could not be removed again, partial
 * without content. */
int partial_mark_make_copy(struct union_fs *t, struct inode *i, int fd,
			   const struct partial_mark_copy *c);
/* Write a mark, after its seal if it has a path. Without a path the lower file is the one at the
 * file's own place, which the same users may read. The path is in both attributes, which may exceed
 * the room of a file system: 4 KiB for all attributes on ext4. A mark that is trusted without a
 * seal (is_covered) is then written without one. 0 or -errno. */
int partial_mark_write(const struct whiteout_style *style, int fd, const struct partial_xattr *m,
		       bool is_covered);
/* Guard a file that has its mark. 0 or -errno; partial_mark_needs_no_guard tells errors after which
 * the file can do without. */
int partial_mark_guard(const struct whiteout_style *style, int fd);
bool partial_mark_needs_no_guard(int r);
/* Before a partial file gets another name (attributes: NULL), or these attributes: write the path
 * of the file under its holes into its mark, with a seal, unless the mark is trusted as it is. Does
 * nothing for other files. Takes i->lock. 0; -ENOSPC, -E2BIG if the path has no room and the mark
 * is not trusted without its seal; -errno. */
int partial_mark_fix(struct union_fs *t, struct inode *i, const struct stat *attributes);
