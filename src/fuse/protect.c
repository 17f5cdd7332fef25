// SPDX-License-Identifier: Apache-2.0
/* Immutable and append-only files and directories of lower layers (chattr(1)). A kernel file system
 * has the flags in its inodes and refuses changes in the VFS; FUSE cannot tell the kernel of them,
 * so the handlers refuse. A regular file is asked for when it would be copied up, and its copy has
 * no flags; a directory keeps those of its lower one, as it is copied up for what is changed
 * further down. What has them in the upper is refused by the upper's file system, but where the
 * kernel writes to it by itself. */
#include "op.h"

#include "veneer/layer/image.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>

static int check(struct union_fs *t, struct inode *i, int refusing)
{
	int r;

	if (!i->lower || (i->type != DT_DIR && i->has_upper))
		return 0;
	r = image_protection(t->image, i->lower);
	return r > 0 ? (r & refusing ? -EPERM : 0) : r;
}

int protect_may_change(struct mount *m, struct inode *i)
{
	return check(&m->tree, i, IMAGE_IMMUTABLE | IMAGE_APPEND_ONLY);
}

int protect_may_add(struct mount *m, struct inode *dir)
{
	return check(&m->tree, dir, IMAGE_IMMUTABLE);
}

/* The upper's file system asks at the open, and the kernel's of what it passes through is none. */
int protect_may_write_past(struct mount *m, struct inode *i)
{
	int fd, r;

	if (!i->has_upper || i->type != DT_REG)
		return 0;
	fd = upper_pin(&m->tree, i);
	if (fd < 0)
		return fd;
	r = image_protection_at(fd, "");
	fd_cache_unpin(&i->src.fd);
	return r > 0 ? (r & (IMAGE_IMMUTABLE | IMAGE_APPEND_ONLY) ? -EPERM : 0) : r;
}

/* A child that was moved elsewhere is copied up, or is a directory without flags. */
static struct inode *find(struct union_fs *t, struct inode *dir, const char *name)
{
	struct inode *i;
	struct stat st;

	if (!dir->lower)
		return NULL;
	return inode_peek(t, dir, name, &i) || lookup_name(t, dir, name, &i, &st) == 0 ? i : NULL;
}

/* A missing entry, or one that cannot be looked at, is answered where it is removed. */
int protect_may_remove(struct mount *m, struct inode *dir, const char *name)
{
	int r = protect_may_change(m, dir);
	struct inode *i = r == 0 ? find(&m->tree, dir, name) : NULL;

	if (i) {
		r = protect_may_change(m, i);
		inode_unref(&m->tree, i);
	}
	return r;
}

int protect_may_replace(struct mount *m, struct inode *dir, const char *name)
{
	int r = protect_may_add(m, dir);
	struct inode *i = r == 0 ? find(&m->tree, dir, name) : NULL;

	if (i) {
		inode_unref(&m->tree, i);
		r = protect_may_remove(m, dir, name);
	}
	return r;
}
