/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the missing blocks of partial files in place, so that they become ordinary files: the
 * inode, its names and attributes stay. The visible content never changes, also if the process is
 * killed. A block holds the lower file's bytes before the map calls it own, and the mark is removed
 * when all blocks are own and on the disk. */
#pragma once

#include "veneer/union/inode.h"

struct materialize {
	struct union_fs *tree;
	/* the tree has no other user, and other programs will read the upper: nothing stays that
	 * only a mount of veneer understands */
	bool is_alone;
	bool takes_nameless; /* also take files without a name, which nothing syncs */
	void (*copied)(void *arg,
		       uint64_t n); /* NULL, or called for each piece of data that was copied */
	void *arg;
	bool cannot_clone; /* a clone was tried and refused */
	uint64_t bytes, cloned; /* copied or cloned so far, and the cloned part of that */
	char *buf; /* materialize.c's */
};

/* Initialize; the caller then sets the other fields. 0 or -ENOMEM. */
int materialize_init(struct materialize *w, struct union_fs *t, bool is_alone);
void materialize_release(struct materialize *w);

/* Make blocks [first, end) of a partial file own, chunk by chunk. Users of the file wait while a
 * chunk is written. 0, also if the file is no longer partial, or is skipped because it has no name;
 * -EIO if the lower file cannot be read; other -errno. Takes i->lock. */
int materialize_fill(struct materialize *w, struct inode *i, blk_t first, blk_t end);
/* The same for all blocks that still show the lower file. */
int materialize_fill_file(struct materialize *w, struct inode *i);
/* Make a file whose blocks are all own an ordinary file that keeps its inode number. Syncs its data
 * first, unless is_alone: then the caller has synced it. 1: the file is (or was) ordinary; 0:
 * blocks are missing, or the file is skipped; -errno. Takes i->lock. */
int materialize_finish(struct materialize *w, struct inode *i);
