/* SPDX-License-Identifier: Apache-2.0 */
/* Places a finished copy at its name, in the mirror and on disk, and keeps the directory's times. A
 * copy is a nameless file (fd, temp is ""), or a name in the work directory (temp). */
#pragma once

#include "veneer/union/hardlink_index.h"

/* A directory in the upper's root that exists while copies with several names are placed. Each copy
 * has a name in it until all its names are made, so that a dying server leaves a record
 * (doc/SPEC.md, section 1). */
#define PUBLISH_PENDING_NAME ".wh..wh.links"

/* Place under one name that is free in the upper. parent has an upper entry. temp is emptied. 0:
 * the copy is visible; -errno: nothing has changed. Under i->lock. */
int publish_one(struct union_fs *t, struct inode *i, int fd, char temp[32], struct inode *parent,
		const char *name);
/* Place under all names of a hard-linked file at once. All directories have an upper entry. Results
 * as of publish_one. Syncs the names if fsync of the file would not (wants_name_sync). */
int publish_all(struct union_fs *t, struct inode *i, int fd, char temp[32],
		const struct hardlink_set *names);
/* Open the directory of pending copies of a mount that died, if its owner is this user and nobody
 * else may write it. Any other object of that name is removed. Descriptor, -ENOENT, -errno. */
int publish_open_left(struct union_fs *t);
/* Called at the end of the mount: remove the directory of pending copies, if there is one. */
void publish_close(struct union_fs *t);
/* Link a file of any type by its descriptor. 0 or -errno. */
int publish_link_fd(int fd, int dirfd, const char *name);
/* Give an object that has a name, (fromfd, from), one more. */
int publish_link(struct union_fs *t, struct inode *i, int fromfd, const char *from,
		 struct inode *parent, const char *name);
