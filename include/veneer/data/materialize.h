/* SPDX-License-Identifier: Apache-2.0 */
/* Making partial files whole, in place: the same inode, its names and attributes as they were. What
 * a file shows does not change at any moment, and a process that is killed in between leaves a file
 * that shows the same: blocks hold what is below before the map calls them own, and the mark goes
 * when all of them are own and on the disk. */
#pragma once

#include "veneer/union/inode.h"

struct materialize {
	struct union_fs *tree;
	bool is_alone; /* the tree has no other user, and other programs are to read the upper:
			* nothing is left that only a mount of ours understands */
	bool takes_nameless; /* files that lost their name, too, which nothing syncs */
	void (*copied)(void *arg,
		       uint64_t n); /* NULL, or called for each piece of data that was brought in */
	void *arg;
	bool cannot_clone; /* tried, and refused */
	uint64_t bytes, cloned; /* brought in so far, and of that without copying */
	char *buf; /* materialize.c's */
};

/* Zeroed but for what is to be set. 0 or -ENOMEM. */
int materialize_init(struct materialize *w, struct union_fs *t, bool is_alone);
void materialize_release(struct materialize *w);

/* Make blocks [first, end) of a partial file its own, by chunks; each chunk holds the file's users
 * up while it is written. 0, also when the file is none any more, or is passed over as it has lost
 * its name; -EIO when
 * what is below cannot be read; other -errno. Takes i->lock. */
int materialize_fill(struct materialize *w, struct inode *i, blk_t first, blk_t end);
/* The same for all that is seen of it from below. */
int materialize_fill_file(struct materialize *w, struct inode *i);
/* If all of its blocks are its own: an ordinary file from now on, with the inode number that it
 * had. The data is had on the disk first, unless is_alone: then the caller has done so. 1: it is
 * (or was) made so; 0: blocks are missing, or it is passed over; -errno. Takes i->lock. */
int materialize_finish(struct materialize *w, struct inode *i);
