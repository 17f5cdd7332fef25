// SPDX-License-Identifier: Apache-2.0
/* Immutable and append-only files and directories of lower layers (chattr(1)). The VFS refuses
 * changes by the flags of kernel inodes, which FUSE cannot set, so the handlers refuse them. A
 * regular file is checked when it would be copied up, and its copy has no flags. A directory keeps
 * those of its lower one, as it is copied up for changes further down. Flags in the upper are
 * checked by its file system, unless the kernel writes to the file by itself. */
#include "op.h"

#include "veneer/layer/image.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

static int check(struct union_fs *t, struct inode *i, int refusing)
{
	int r;

	if (!inode_lower(i) || (!inode_is_dir(i) && inode_has_upper(i)))
		return 0;
	r = image_protection(t->image, inode_lower(i));
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

/* The upper's file system checks flags at open(2), which the kernel does not call for passthrough.
 */
int protect_may_passthrough(struct mount *m, struct inode *i)
{
	int fd, r;

	if (!inode_has_upper(i) || !inode_is_regular(i))
		return 0;
	fd = upper_pin(&m->tree, i);
	if (fd < 0)
		return fd;
	r = image_protection_at(fd, "");
	upper_unpin(i);
	return r > 0 ? (r & (IMAGE_IMMUTABLE | IMAGE_APPEND_ONLY) ? -EPERM : 0) : r;
}

/* A child that was moved elsewhere is copied up, or is a directory without flags. */
static struct inode *find(struct union_fs *t, struct inode *dir, const char *name)
{
	struct inode *i;
	struct stat st;

	if (!inode_lower(dir))
		return NULL;
	return inode_peek(t, dir, name, &i) || lookup_name(t, dir, name, &i, &st) == 0 ? i : NULL;
}

/* The removal itself fails for an entry that is missing or cannot be looked up. */
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
