/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a look-up, which restore.c puts together in another way. */
#pragma once

#include "veneer/union/lookup.h"

struct partial_xattr;

/* Find the entry at a name, whatever inode is known by it. -ENOENT; -EAGAIN: it changed meanwhile;
 * -errno. */
int lookup_find(struct union_fs *t, struct inode *dir, const char *name, struct inode_found *ret);
/* Of one that the upper has; below: what the lower directory has of that name, or NULL. */
int lookup_find_upper(struct union_fs *t, struct inode *dir, const char *name,
		      struct image_entry *below, struct inode_found *f, struct stat *st);
/* A partial file of the upper, open at fd, what it shows being copied from base: its bytes into *f.
 * path is for messages. -ENOENT or -EUCLEAN: it is damaged. */
int lookup_base(struct union_fs *t, int fd, const struct partial_xattr *m, struct image_entry *base,
		const char *path, struct inode_found *f);
