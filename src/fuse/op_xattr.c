// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include "veneer/attr.h"
#include "veneer/cleanup.h"

static bool refuse(fuse_req_t req)
{
	/* ENOSYS makes the kernel stop asking. */
	if (op_mount(req)->opts.has_no_xattrs) {
		fuse_reply_err(req, ENOSYS);
		return true;
	}
	return false;
}

static void answer(fuse_req_t req, ssize_t n, const char *value, size_t size)
{
	if (n < 0)
		op_reply_err(req, (int)n);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else
		fuse_reply_buf(req, value, (size_t)n);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(freep) char *value = size ? malloc(size) : NULL;
	struct inode *i;

	if (refuse(req))
		return;
	i = op_inode(req, ino);
	if (!i)
		return;
	if (size && !value)
		fuse_reply_err(req, ENOMEM);
	else
		answer(req, attr_getxattr(&op_mount(req)->tree, i, name, value, size), value, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(freep) char *list = size ? malloc(size) : NULL;
	struct inode *i;

	if (refuse(req))
		return;
	i = op_inode(req, ino);
	if (!i)
		return;
	if (size && !list)
		fuse_reply_err(req, ENOMEM);
	else
		answer(req, attr_listxattr(&op_mount(req)->tree, i, list, size), list, size);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct inode *i;

	if (refuse(req))
		return;
	i = op_inode(req, ino);
	if (i)
		op_reply_err(req, attr_setxattr(&op_mount(req)->tree, i, name, value, size, flags));
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct inode *i;

	if (refuse(req))
		return;
	i = op_inode(req, ino);
	if (i)
		op_reply_err(req, attr_removexattr(&op_mount(req)->tree, i, name));
}

void op_xattr_install(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_removexattr;
}
