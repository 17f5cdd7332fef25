/* SPDX-License-Identifier: Apache-2.0 */
/* Removes names and hides the lower layers' entries of the same name. The kernel holds the locks of
 * the directory and the victim during the request. */
#pragma once

#include "veneer/union/inode.h"
#include "veneer/union/lookup.h"

/* unlink(2), rmdir(2). Open files stay usable until the kernel forgets them. 0 or -errno. */
int remove_file(struct union_fs *t, struct inode *parent, const char *name);
int remove_dir(struct union_fs *t, struct inode *parent, const char *name);

/* Undo the creation of an upper entry. `before` is the state of the name before it. 0 or -errno. */
int remove_made(struct union_fs *t, struct inode *parent, const char *name,
		const struct lookup_state *before, bool is_dir);

/* For rename: i loses its upper name between prepare and done, with i->lock held for writing.
 * prepare keeps open files usable. done is told whether the name has gone. */
struct removal {
	bool is_last;
};
int remove_prepare(struct union_fs *t, struct inode *i, struct removal *ret);
void remove_done(struct union_fs *t, struct inode *i, const struct removal *r, bool has_gone);
/* Empty and remove a directory in the work directory. Entries that cannot be removed stay until the
 * next mount. */
void remove_temp_dir(struct union_fs *t, const char *temp);
/* Remove (dirfd, name), a file or directory that no caller sees. 0, also if nothing is there, or
 * -errno. */
int remove_unseen(struct union_fs *t, int dirfd, const char *name);
/* Clean up a name that a dead server had removed or moved an object away from. Removes any object
 * left there, seen or hidden, and leaves a whiteout if there is a lower entry. 0 or -errno. */
int remove_leftover(struct union_fs *t, struct inode *parent, const char *name);
/* A hidden name in the directory of `name`, for an object that will replace or hide `name`. The
 * name is always the same, so that the next server finds a leftover. */
void remove_beside_name(const char *name, char beside[NAME_MAX + 1]);
/* Make a link of the shared whiteout inode, or a new whiteout, at (dirfd, name), which does not
 * exist. */
int remove_make_whiteout(struct union_fs *t, int dirfd, const char *name);
