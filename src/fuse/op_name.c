// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include "veneer/create.h"
#include "veneer/remove.h"
#include "veneer/rename.h"
#include "veneer/tmpfile.h"

static struct create_args args_of(fuse_req_t req, mode_t mode)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct mount *m = op_mount(req);

	return (struct create_args){
		.mode = mode,
		.umask = ctx->umask,
		.uid = mount_uid_to_disk(m, ctx->uid),
		.gid = mount_gid_to_disk(m, ctx->gid),
		.ignores_chown = mount_squashes(m),
	};
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, const struct create_args *args)
{
	struct inode *dir = op_inode(req, parent), *i;
	struct stat st;
	int r;

	if (!dir)
		return;
	r = create_node(&op_mount(req)->tree, dir, name, args, &i, &st);
	if (r < 0)
		op_reply_err(req, r);
	else
		op_reply_entry(req, i, &st);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct create_args args = args_of(req, mode);

	args.rdev = rdev;
	make(req, parent, name, &args);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct create_args args = args_of(req, S_IFDIR | (mode & 07777));

	make(req, parent, name, &args);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct create_args args = args_of(req, S_IFLNK | 0777);

	args.target = target;
	make(req, parent, name, &args);
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
	struct create_args args = args_of(req, mode);
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, parent), *i;
	struct stat st;
	int r;

	if (!dir)
		return;
	r = tmpfile_create(&m->tree, dir, &args, &i, &st);
	if (r < 0)
		op_reply_err(req, r);
	else
		op_reply_create(req, i, &st, fi);
}

/* Where opens are not asked about, a file is made by MKNOD. */
static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct create_args args = args_of(req, S_IFREG | (mode & 07777));
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, parent), *i;
	struct stat st;
	int r;

	if (!dir)
		return;
	r = op_open_settle(m, request_extra.session) == IO_PASSTHROUGH ?
		    create_node(&m->tree, dir, name, &args, &i, &st) : -ENOSYS;
	if (r < 0)
		op_reply_err(req, r);
	else
		op_reply_create(req, i, &st, fi);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino), *dir, *again;
	bool was_nameless;
	struct stat st;
	int r;

	if (!i)
		return;
	dir = op_inode(req, parent);
	if (!dir)
		return;
	was_nameless = i->is_orphan;
	r = create_link(&m->tree, i, dir, name, &st);
	if (r == 0 && was_nameless)
		tmpfile_named(&m->tree, i);
	if (r == 0 && !inode_peek(&m->tree, dir, name, &again))
		r = -ENOENT;
	if (r < 0)
		op_reply_err(req, r);
	else
		op_reply_entry(req, i, &st);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct inode *dir = op_inode(req, parent);

	if (dir)
		op_reply_err(req, remove_file(&op_mount(req)->tree, dir, name));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct inode *dir = op_inode(req, parent);

	if (dir)
		op_reply_err(req, remove_dir(&op_mount(req)->tree, dir, name));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
		      unsigned int flags)
{
	struct inode *from = op_inode(req, parent), *to;

	if (!from)
		return;
	to = op_inode(req, newparent);
	if (to)
		op_reply_err(req, rename_entry(&op_mount(req)->tree, from, name, to, newname, flags));
}

void op_name_install(struct fuse_lowlevel_ops *ops)
{
	ops->mknod = op_mknod;
	ops->create = op_create;
	ops->mkdir = op_mkdir;
	ops->symlink = op_symlink;
	ops->tmpfile = op_tmpfile;
	ops->link = op_link;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
}
