/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the file, if any, that holds all bytes of a regular file of a mount, so that the kernel
 * may read it in our place. */
#pragma once

#include "veneer/passthrough/passthrough_table.h"
#include "veneer/union/inode.h"

/* Pages of a file of this size cost little in each mount. */
#define PASSTHROUGH_SELECT_SMALL_BYTES (64 * 1024)

struct passthrough_select {
	enum passthrough_table_kind
		kind; /* NONE: the bytes are in several places, or the file is damaged */
	struct source *lower; /* kinds LOWER and FLAT; borrowed from image or inode */
	int flat; /* kind FLAT: the copy of lower; borrowed, as that is */
	bool is_partial; /* NONE because its bytes are in several places */
	bool is_program; /* executable, or called like a library */
	bool is_static; /* a lower file below /usr or the like */
	bool is_log; /* called like a log, or in a directory of logs */
	bool is_writable; /* some bit of its mode says so */
	bool is_remote; /* LOWER: to open it once more would be asked of a remote server
			   (layer_trust_remote) */
	off_t size; /* this, is_program and is_writable: not of an ordinary file of the upper */
};

/* The choice for an open that reads, or also writes: PASSTHROUGH_TABLE_UPPER once chosen stays
 * right; PASSTHROUGH_TABLE_LOWER is right until the file is changed, so look again when changes
 * would be noticed. No lock is needed. 0 or -errno. */
int passthrough_select_look(struct union_fs *t, struct inode *i, bool writes,
			    struct passthrough_select *ret);

/* Has the upper file of the inode all the bytes that are seen? */
bool passthrough_select_is_whole(const struct inode *i);

/* May programs read the offered lower file while another one writes it? A descriptor that was
 * opened for reading before the first write would go on showing the lower file's bytes. Logs count
 * by name, and databases in one file by their first bytes. Text counts too, as a log of any name is
 * text, unless it is small, a program, part of an installation, or closed to writers. The first
 * call reads the file; an error counts as no. */
bool passthrough_select_is_followed(const struct passthrough_select *o);

/* Would a flat copy of a partial lower file, which is not small, be passed through to those who
 * read it? Reads the file once, as above. */
bool passthrough_select_gains_copy(struct union_fs *t, struct inode *i, bool minds_followers);

/* A descriptor of the offered file. */
struct passthrough_select_file {
	int fd;
	int own; /* closed by passthrough_select_close, or -1 */
	struct fd_cache_slot *pinned; /* unpinned by it, or NULL */
};

/* A lower file is opened in a read-only clone of its mount, where even a mistake cannot write and
 * no access time changes; -EOPNOTSUPP where there can be none. 0 or -errno. */
int passthrough_select_open(struct union_fs *t, struct inode *i, const struct passthrough_select *o,
			    struct passthrough_select_file *ret);
void passthrough_select_close(struct passthrough_select_file *f);
