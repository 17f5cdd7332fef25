/* SPDX-License-Identifier: Apache-2.0 */
/* Which file, if any, holds all bytes of a regular file of a mount, so that the kernel may read it in our place. */
#pragma once

#include "veneer/backing.h"
#include "veneer/inode.h"

/* Pages of a file of this size cost little in each mount. */
#define OFFER_SMALL_BYTES (64 * 1024)

struct offer {
	enum backing_kind kind;	/* NONE: the bytes are in several places, or the file is damaged */
	struct source *lower;	/* kind LOWER; borrowed from image or inode */
	bool is_partial;	/* NONE because its bytes are in several places */
	bool is_program;	/* executable, or called like a library */
	bool is_static;		/* a lower file below /usr or the like */
	bool is_log;		/* called like a log, or in a directory of logs */
	bool is_writable;	/* some bit of its mode says so */
	bool is_remote;		/* LOWER: to open it once more would be asked of somebody elsewhere (layer_trust_remote) */
	off_t size;
};

/* What can be offered to one who reads, or also writes: BACKING_UPPER once chosen stays right; BACKING_LOWER is right
 * until the file is changed, so look again when changes would be noticed. No lock is needed. 0 or -errno. */
int offer_look(struct tree *t, struct inode *i, bool writes, struct offer *ret);

/* Whether programs may read the lower file that is offered while another one writes it: a descriptor that was opened for
 * reading before the first write would go on showing the lower file's bytes. That holds for logs, by name; for databases in
 * one file, by their first bytes; and for text that is not small, a program, part of an installation, or closed to
 * writers, as a log of any name is text. The file is read once, when this is first asked; an error counts as no. */
bool offer_is_followed(const struct offer *o);

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
