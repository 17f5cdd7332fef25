// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include "veneer/attr.h"
#include "veneer/cleanup.h"
#include "veneer/cow.h"
#include "veneer/image.h"
#include "veneer/read.h"
#include "veneer/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

/* One buffer a thread: allocated at the largest read it has seen, freed when the thread ends. */
static _Thread_local struct {
	char *data;
	size_t size;
} read_buf;

void op_thread_release(void)
{
	free(read_buf.data);
	read_buf.data = NULL;
	read_buf.size = 0;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct inode *i = op_inode(req, ino);
	ssize_t n;

	(void)fi;
	if (!i)
		return;
	if (size > read_buf.size) {
		char *p = realloc(read_buf.data, size);

		if (!p) {
			fuse_reply_err(req, ENOMEM);
			return;
		}
		read_buf.data = p;
		read_buf.size = size;
	}
	n = read_file(&op_mount(req)->tree, i, read_buf.data, size, off);
	if (n < 0)
		op_reply_err(req, (int)n);
	else
		fuse_reply_buf(req, read_buf.data, (size_t)n);
}

static int write_file(struct tree *t, struct inode *i, const char *data, size_t size, off_t off)
{
	struct attr_setid setid;
	int r;

	if (request_extra.kills_setid) {
		r = cow_write(t, i, data, size, off);
		return r == 0 ? attr_kill_setid(t, i) : r;
	}
	attr_setid_begin(t, i, &setid);
	r = cow_write(t, i, data, size, off);
	return attr_setid_end(t, i, &setid, r);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	int r;

	(void)fi;
	if (!i)
		return;
	r = write_file(&m->tree, i, data, size, off);
	/* What was just unlinked gives its room back when the kernel forgets it, a moment later. */
	for (int attempt = 0; attempt < 3 && (r == -ENOSPC || r == -EDQUOT); attempt++) {
		usleep(2000);
		r = write_file(&m->tree, i, data, size, off);
	}
	if (r < 0)
		op_reply_err(req, r);
	else
		fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);

	(void)fi;
	if (!i)
		return;
	/* ENOSYS makes the kernel stop asking and answer 0 itself. */
	if (m->tree.is_volatile)
		fuse_reply_err(req, ENOSYS);
	else
		op_reply_err(req, cow_fsync(&m->tree, i, datasync));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	int r;

	(void)fi;
	if (!i)
		return;
	r = cow_fallocate(&m->tree, i, mode, off, len);
	/* The kernel leaves this to us and does not say what the caller may: only root may keep the bits, and only
	 * the root of the first user namespace. */
	if (r == 0 && (fuse_req_ctx(req)->uid != 0 || !m->tree.can.has_trusted_xattr))
		r = attr_kill_setid(&m->tree, i);
	op_reply_err(req, r);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct inode *i = op_inode(req, ino);
	off_t pos;

	(void)fi;
	if (!i)
		return;
	if (whence != SEEK_DATA && whence != SEEK_HOLE) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	pos = read_seek(&op_mount(req)->tree, i, off, whence);
	if (pos < 0)
		op_reply_err(req, (int)pos);
	else
		fuse_reply_lseek(req, pos);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	char target[PATH_MAX + 1];
	bool is_up;
	ssize_t n;
	int fd;

	if (!i)
		return;
	/* Once: it may be copied up meanwhile. */
	is_up = i->has_upper;
	fd = is_up ? upper_pin(&m->tree, i) : image_open_path(m->tree.image, i->lower);
	if (fd < 0) {
		op_reply_err(req, fd);
		return;
	}
	n = readlinkat(fd, "", target, sizeof(target) - 1);
	n = n < 0 ? -errno : n;
	if (is_up)
		fdcache_unpin(&i->src.fd);
	else
		close(fd);
	if (n < 0) {
		op_reply_err(req, (int)n);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

void op_data_install(struct fuse_lowlevel_ops *ops)
{
	ops->read = op_read;
	ops->write = op_write;
	ops->fsync = op_fsync;
	ops->fallocate = op_fallocate;
	ops->lseek = op_lseek;
	ops->readlink = op_readlink;
}
