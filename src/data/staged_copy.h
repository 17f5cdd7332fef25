/* SPDX-License-Identifier: Apache-2.0 */
/* The copy of a lower object before it is placed: without a name, or in the work directory. */
#pragma once

#include "veneer/data/copyup.h"

#include <sys/stat.h>

/* Start with fd -1 and has_path and is_nameless set. */
struct staged_copy {
	int fd;
	/* in the work directory; empty: no name */
	char temp[32];
	/* at its creation, to skip attributes that are right already */
	struct stat st;
	/* the mark states the path of the lower file */
	bool has_path;
	/* the copy will not be placed */
	bool is_nameless;
	/* of a partial file: the bytes that a whole copy would copy */
	uint64_t whole_bytes;
};

/* Copy i, and apply change (or NULL). Under i->lock. After a failure, call staged_copy_discard. 0
 * or -errno. */
int staged_copy_make(struct union_fs *t, struct inode *i, struct copyup_change *change,
		     struct staged_copy *f);
/* Make a complete, nameless copy of a regular file's content, of the upper or below. Syncs nothing.
 * Otherwise as staged_copy_make, but takes i->lock. */
int staged_copy_as_shown(struct union_fs *t, struct inode *i, struct staged_copy *f);
/* False: the copy could not be removed. The next mount finds it, so its entry in the map must
 * stay. */
bool staged_copy_discard(struct union_fs *t, struct staged_copy *f, bool is_dir);
