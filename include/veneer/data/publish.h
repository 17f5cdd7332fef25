/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a finished copy where it is seen, in the mirror and on disk, without a trace in the
 * directory's times. A copy is a nameless file (fd, temp is ""), or a name in the work directory
 * (temp). */
#pragma once

#include "veneer/union/hardlink_index.h"

/* In the upper's root, there while copies with several names are being placed: each has a name in
 * it until all of its names are made, so that a server that dies between them leaves a note
 * (doc/SPEC.md, section 1). */
#define PUBLISH_PENDING_NAME ".wh..wh.links"

/* Under one name, at which nothing is in the upper. parent has an upper entry. temp is emptied. 0,
 * and then the copy is seen; -errno, and nothing has changed. Under i->lock. */
int publish_one(struct union_fs *t, struct inode *i, int fd, char temp[32], struct inode *parent,
		const char *name);
/* Under all names of a hard-linked file at once. All directories have an upper entry. As
 * publish_one. Where fsync of the file would not (wants_name_sync), this makes the names
 * durable. */
int publish_all(struct union_fs *t, struct inode *i, int fd, char temp[32],
		const struct hardlink_set *names);
/* The directory of pending copies that a mount left which died, if it is as that made it: this
 * user's alone. What others made of that name goes. Descriptor, -ENOENT, -errno. */
int publish_open_left(struct union_fs *t);
/* The mount ends: take the directory of pending copies away, if one was left. */
void publish_close(struct union_fs *t);
/* Hard link of any kind of file by its descriptor. 0 or -errno. */
int publish_link_fd(int fd, int dirfd, const char *name);
/* One more name of what has a name already: (fromfd, from). */
int publish_link(struct union_fs *t, struct inode *i, int fromfd, const char *from,
		 struct inode *parent, const char *name);
