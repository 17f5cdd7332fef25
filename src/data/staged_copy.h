/* SPDX-License-Identifier: Apache-2.0 */
/* The copy of a lower file, directory or anything else before it has its place: without a name, or
 * in the work directory. */
#pragma once

#include "veneer/data/copyup.h"

#include <sys/stat.h>

/* Start with fd -1 and has_path, is_nameless set. */
struct staged_copy {
	int fd;
	/* in the work directory; empty: it has none */
	char temp[32];
	/* as it was made, for what need not be set again */
	struct stat st;
	/* its mark is to say where the lower file is */
	bool has_path;
	/* and stays so */
	bool is_nameless;
	/* of a partial file: what copying it whole would copy */
	uint64_t whole_bytes;
};

/* Copy i, with the change done that it is copied for (or NULL). Under i->lock. After a failure it
 * is to be discarded. 0 or -errno. */
int staged_copy_make(struct union_fs *t, struct inode *i, struct copyup_change *change,
		     struct staged_copy *f);
/* A complete copy, without a name, of what a regular file shows, which may have an upper entry.
 * Nothing is synced. Likewise. */
int staged_copy_as_shown(struct union_fs *t, struct inode *i, struct staged_copy *f);
/* False: something could not be removed. The next mount finds it, and it needs its entry in the
 * map. */
bool staged_copy_discard(struct union_fs *t, struct staged_copy *f, bool is_dir);
