/* SPDX-License-Identifier: Apache-2.0 */
/* Which file, if any, holds all bytes of a regular file of a mount, so that the kernel may read it in our place. */
#pragma once

#include "veneer/backing.h"
#include "veneer/inode.h"

struct offer {
	enum backing_kind kind;	/* NONE: the bytes are in several places, or the file is damaged */
	struct source *lower;	/* kind LOWER; borrowed from image or inode */
	bool is_partial;	/* NONE because its bytes are in several places */
	bool is_program;	/* executable, or called like a library */
	bool is_static;		/* a lower file below /usr or the like */
	bool is_remote;		/* LOWER: to open it once more would be asked of somebody elsewhere (layer_trust_remote) */
	off_t size;
};

/* What can be offered to one who reads, or also writes: BACKING_UPPER once chosen stays right; BACKING_LOWER is right
 * until the file is changed, so look again when changes would be noticed. No lock is needed. 0 or -errno. */
int offer_look(struct tree *t, struct inode *i, bool writes, struct offer *ret);

/* Whether the lower file that is offered is a database of SQLite or its write-ahead log, by its first bytes (SQLite
 * file format, 1.3.1 and 4.1). Such a file is written in place while others have it open only to read, who would go on
 * seeing the lower file's bytes, and its users lock it, which is done by node. One read of each lower file, when it is first
 * asked for; an error counts as no. */
bool offer_is_database(const struct offer *o);

/* A descriptor of what is offered. */
struct offer_file {
	int fd;
	int own;		/* closed by offer_close, or -1 */
	struct fdslot *pinned;	/* unpinned by it, or NULL */
};

/* A lower file is opened in a read-only clone of its mount, where even a mistake cannot write and no access time
 * changes; -EOPNOTSUPP where there can be none. 0 or -errno. */
int offer_open(struct tree *t, struct inode *i, const struct offer *o, struct offer_file *ret);
void offer_close(struct offer_file *f);
