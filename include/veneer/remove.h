/* SPDX-License-Identifier: Apache-2.0 */
/* Names going away, and what hides the lower layers' entries of the same name. The caller (the kernel) holds
 * the directory and the victim. */
#pragma once

#include "veneer/inode.h"
#include "veneer/lookup.h"

/* unlink(2), rmdir(2). What is open stays usable until the kernel forgets it. 0 or -errno. */
int remove_file(struct tree *t, struct inode *parent, const char *name);
int remove_dir(struct tree *t, struct inode *parent, const char *name);

/* For rename: i is about to lose its upper name. Keeps what is open usable. i->lock is held for writing. */
int remove_prepare(struct tree *t, struct inode *i);
/* Empty and remove a directory of the work directory; what resists stays there until the next mount. */
void remove_temp_dir(struct tree *t, const char *temp);
/* A link of the shared whiteout inode, or a new whiteout, at (dirfd, name), which does not exist. */
int remove_make_whiteout(struct tree *t, int dirfd, const char *name);
