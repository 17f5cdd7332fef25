// SPDX-License-Identifier: Apache-2.0
/* Only the flags of chattr(1) can be read, for lsattr(1), and not set: a copy-up would lose them.
 * For this the kernel opens a file by itself, if need be without an OPEN. After ENOSYS it would
 * send no ioctl of the whole mount any more. */
#include "op.h"

#include "veneer/layer/image.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

static void reply_flags(fuse_req_t req, int protection, size_t room)
{
	const unsigned flags = (protection & IMAGE_IMMUTABLE ? FS_IMMUTABLE_FL : 0) |
			       (protection & IMAGE_APPEND_ONLY ? FS_APPEND_FL : 0) |
			       (protection & IMAGE_NODUMP ? FS_NODUMP_FL : 0);

	if (room < sizeof(flags))
		op_reply_err(req, -EINVAL);
	else
		fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
}

static void reply_xflags(fuse_req_t req, int protection, size_t room)
{
	const struct fsxattr x = { .fsx_xflags =
					   (protection & IMAGE_IMMUTABLE ? FS_XFLAG_IMMUTABLE : 0) |
					   (protection & IMAGE_APPEND_ONLY ? FS_XFLAG_APPEND : 0) |
					   (protection & IMAGE_NODUMP ? FS_XFLAG_NODUMP : 0) };

	if (room < sizeof(x))
		op_reply_err(req, -EINVAL);
	else
		fuse_reply_ioctl(req, 0, &x, sizeof(x));
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		     size_t room)
{
	const bool is_get = cmd == FS_IOC_GETFLAGS || cmd == FS_IOC_FSGETXATTR;
	struct inode *i;
	int r;

	(void)arg, (void)fi, (void)flags, (void)in, (void)in_size;
	if (!is_get) {
		op_reply_err(req, cmd == FS_IOC_SETFLAGS || cmd == FS_IOC_FSSETXATTR ? -EOPNOTSUPP
										     : -ENOTTY);
		return;
	}
	i = op_inode(req, ino);
	if (!i)
		return;
	r = attr_protection(&op_mount(req)->tree, i);
	if (r < 0)
		op_reply_err(req, r);
	else if (cmd == FS_IOC_GETFLAGS)
		reply_flags(req, r, room);
	else
		reply_xflags(req, r, room);
}

void op_ioctl_install(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
}
