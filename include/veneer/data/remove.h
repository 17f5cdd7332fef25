/* SPDX-License-Identifier: Apache-2.0 */
/* Names going away, and what hides the lower layers' entries of the same name. The caller (the
 * kernel) holds the directory and the victim. */
#pragma once

#include "veneer/union/inode.h"
#include "veneer/union/lookup.h"

/* unlink(2), rmdir(2). What is open stays usable until the kernel forgets it. 0 or -errno. */
int remove_file(struct union_fs *t, struct inode *parent, const char *name);
int remove_dir(struct union_fs *t, struct inode *parent, const char *name);

/* Undo an entry that was just made in the upper, where there was what `before` says. 0 or
 * -errno. */
int remove_made(struct union_fs *t, struct inode *parent, const char *name,
		const struct lookup_state *before, bool is_dir);

/* For rename: i is about to lose its upper name; i->lock is held for writing from prepare to done.
 * prepare keeps what is open usable; done says whether the name went (and if it was the last) or
 * stays after all. */
struct removal {
	bool is_last;
};
int remove_prepare(struct union_fs *t, struct inode *i, struct removal *ret);
void remove_done(struct union_fs *t, struct inode *i, const struct removal *r, bool has_gone);
/* Empty and remove a directory of the work directory; what resists stays there until the next
 * mount. */
void remove_temp_dir(struct union_fs *t, const char *temp);
/* Remove (dirfd, name), a file or a directory that no caller sees; nothing there is fine. 0 or
 * -errno. */
int remove_unseen(struct union_fs *t, int dirfd, const char *name);
/* Take away what a server that died left at a name which it had removed, or moved something from:
 * seen or hidden, it goes, and a whiteout is there in the end if something is below. 0 or
 * -errno. */
int remove_leftover(struct union_fs *t, struct inode *parent, const char *name);
/* A hidden name in the directory of `name`, for what is to get that name, or to hide it: always the
 * same, so that what a server left there is found. */
void remove_beside_name(const char *name, char beside[NAME_MAX + 1]);
/* A link of the shared whiteout inode, or a new whiteout, at (dirfd, name), which does not
 * exist. */
int remove_make_whiteout(struct union_fs *t, int dirfd, const char *name);
