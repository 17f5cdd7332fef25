/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a lookup, which restore.c combines in another way. */
#pragma once

#include "veneer/union/lookup.h"

struct partial_xattr;

/* Find the entry at a name, even if an inode is known by the name. -ENOENT; -EAGAIN: it changed
 * meanwhile; -errno. */
int lookup_find(struct union_fs *t, struct inode *dir, const char *name, struct inode_found *ret);
/* The same for an upper entry; below: the lower directory's entry of that name, or NULL. */
int lookup_find_upper(struct union_fs *t, struct inode *dir, const char *name,
		      struct image_entry *below, struct inode_found *f, struct stat *st);
/* Fill *f for a partial upper file, open at fd, with the lower file base. path is for messages.
 * -ENOENT or -EUCLEAN: it is damaged. */
int lookup_base(struct union_fs *t, int fd, const struct partial_xattr *m, struct image_entry *base,
		const char *path, struct inode_found *f);
