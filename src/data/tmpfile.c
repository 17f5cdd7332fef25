// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/tmpfile.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/data/copyup.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

/* Set owner and mode as of a file that is made with a name. st: in, of the directory; out, of the
 * file. */
static int settle(struct union_fs *t, struct inode *parent, int fd, const struct create_args *args,
		  struct stat *st)
{
	const mode_t setid = args->mode & (S_ISUID | S_ISGID | S_ISVTX);
	const gid_t gid = st->st_mode & S_ISGID ? st->st_gid : args->gid;

	if (fstat(fd, st) < 0)
		return -errno;
	if (t->upper->override) {
		int r = mode_xattr_keep_access(fd, st->st_mode);

		st->st_uid = args->uid;
		st->st_gid = gid;
		/* A default ACL has limited the real mode. */
		st->st_mode = args->mode &
			      (upper_has_default_acl(parent) ? st->st_mode | ~(mode_t)0777
							     : ~args->umask);
		return r ?: mode_xattr_store(fd, t->upper->override, st);
	}
	if ((st->st_uid != args->uid || st->st_gid != gid) && fchown(fd, args->uid, gid) < 0 &&
	    !args->ignores_chown)
		return -errno;
	if (setid && fchmod(fd, (st->st_mode & 0777) | setid) < 0)
		return -errno;
	return fstat(fd, st) < 0 ? -errno : 0;
}

/* Make the file in the directory itself, whose default ACL it inherits. */
static int make(struct union_fs *t, struct inode *parent, const struct create_args *args,
		int *ret_fd, struct stat *st)
{
	const int flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
	_cleanup_(closep) int fd = -1;
	mode_t mode = args->mode;
	struct upper_dir *d;
	int dirfd, r = upper_listing(t, parent, &d); /* tells whether there is a default ACL */

	if (r < 0)
		return r;
	dirfd = upper_pin(t, parent);
	if (dirfd < 0)
		return dirfd;
	if (!upper_has_default_acl(parent))
		mode &= ~args->umask;
	if (t->upper->override)
		mode = upper_has_default_acl(parent) ? mode_xattr_acl_mode(mode)
						     : mode_xattr_real_mode(mode);
	r = fstat(dirfd, st) < 0 ? -errno : 0;
	if (r == 0) {
		mode_xattr_apply(dirfd, "", t->upper->override, st);
		fd = openat(dirfd, ".", flags | upper_quiet_flag(t), mode & 0777);
		/* A file system mounted inside the upper may give new files another owner. */
		if (fd < 0 && errno == EPERM)
			fd = openat(dirfd, ".", flags, mode & 0777);
		/* A file system without O_TMPFILE takes this for opening a directory for
		 * writing. */
		if (fd < 0)
			r = errno == EISDIR ? -EOPNOTSUPP : -errno;
	}
	fd_cache_unpin(&parent->src.fd);
	if (r == 0)
		r = settle(t, parent, fd, args, st);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

int tmpfile_create(struct union_fs *t, struct inode *parent, const struct create_args *args,
		   struct inode **ret, struct stat *ret_st)
{
	_cleanup_(closep) int fd = -1;
	char name[40] = "/";
	int r = copyup_inode(t, parent, NULL);

	if (r == 0)
		r = upper_take_share(t);
	if (r < 0)
		return r;
	r = quota_claim(t->quota, 0, 1);
	if (r == 0) {
		r = make(t, parent, args, &fd, ret_st);
		quota_settle(t->quota, r == 0 ? fd : -1, 0, 1);
	}
	if (r < 0) {
		fd_cache_unhold(&t->held);
		return r;
	}
	struct inode_found f = { .type = DT_REG,
				 .has_upper = true,
				 .upper_ino = ret_st->st_ino,
				 .upper_dev = inode_upper_dev(t, ret_st->st_dev),
				 .ino = inode_fold_ino(t, ret_st->st_dev, ret_st->st_ino) };

	/* The table knows inodes by name: use, for a moment, a name that no caller can look up. */
	upper_temp_name(t, name + 1);
	r = inode_enter(t, parent, name, &f, ret);
	if (r < 0) {
		quota_gone(t->quota, f.upper_ino);
		fd_cache_unhold(&t->held);
		return r;
	}
	/* Keep the pin: without a name the file could not be opened again. */
	upper_hold_fresh(t, *ret, steal_fd(&fd));
	inode_drop_name(t, parent, name);
	ret_st->st_ino = f.ino;
	return 0;
}

void tmpfile_named(struct union_fs *t, struct inode *i)
{
	WRLOCK_SCOPE(&i->lock);
	upper_let_go(t, i);
}
