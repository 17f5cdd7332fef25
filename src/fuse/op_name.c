// SPDX-License-Identifier: Apache-2.0
#include "op.h"

#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/data/replay.h"
#include "veneer/data/tmpfile.h"
#include "veneer/fuse/rollback_notify.h"

#include <stdio.h>

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

static int make_node(fuse_req_t req, struct inode *dir, const char *name,
		     const struct create_args *args, struct inode **ret, struct stat *ret_st)
{
	struct union_fs *t = &op_mount(req)->tree;
	unsigned attempts = 0;
	int r;

	do {
		r = negotiate_request_extra.is_resent
			    ? create_again(t, dir, name, args, ret, ret_st)
			    : create_node(t, dir, name, args, ret, ret_st);
	} while (op_data_waits_for_room(req, r, &attempts));
	return r;
}

/* If this server dies, and then the caller, the kernel would keep its negative entry of the name.
 */
static void log_new_name(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	intent_log_mark(resend_state_begin_names(req, INTENT_CREATE, parent, name, 0, NULL));
}

/* fi: open it as well, or NULL. */
static void make(fuse_req_t req, fuse_ino_t parent, const char *name,
		 const struct create_args *args, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, parent), *i = NULL;
	struct stat st;
	int r;

	if (!dir)
		return;
	/* The kernel then makes files by MKNOD. */
	if (fi && op_open_settle(m, negotiate_request_extra.session) != IO_PASSTHROUGH) {
		op_reply_err(req, -ENOSYS);
		return;
	}
	log_new_name(req, parent, name);
	r = protect_may_add(m, dir);
	if (r == 0)
		r = make_node(req, dir, name, args, &i, &st);
	if (r >= 0 && fi)
		op_open_reply_create(req, i, &st, fi);
	else
		op_reply_entry(req, r, i, &st);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct create_args args = args_of(req, mode);

	args.rdev = rdev;
	make(req, parent, name, &args, NULL);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct create_args args = args_of(req, S_IFDIR | (mode & 07777));

	make(req, parent, name, &args, NULL);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct create_args args = args_of(req, S_IFLNK | 0777);

	args.target = target;
	make(req, parent, name, &args, NULL);
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
	struct create_args args = args_of(req, mode);
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, parent), *i;
	unsigned attempts = 0;
	struct stat st;
	int r;

	if (!dir)
		return;
	do {
		r = protect_may_add(m, dir);
		if (r == 0)
			r = tmpfile_create(&m->tree, dir, &args, &i, &st);
	} while (op_data_waits_for_room(req, r, &attempts));
	if (r < 0)
		op_reply_err(req, r);
	else
		op_open_reply_create(req, i, &st, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct create_args args = args_of(req, S_IFREG | (mode & 07777));

	make(req, parent, name, &args, fi);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino), *dir = i ? op_inode(req, parent) : NULL, *again;
	unsigned attempts = 0;
	bool was_nameless;
	struct stat st;
	int r;

	if (!dir)
		return;
	was_nameless = inode_is_orphan(i);
	log_new_name(req, parent, name);
	do {
		r = protect_may_change(m, i) ?: protect_may_add(m, dir);
		if (r == 0)
			r = (negotiate_request_extra.is_resent ? replay_link : create_link)(
				&m->tree, i, dir, name, &st);
	} while (op_data_waits_for_room(req, r, &attempts));
	if (r == 0 && was_nameless)
		tmpfile_named(&m->tree, i);
	if (r == 0 && !inode_peek(&m->tree, dir, name, &again))
		r = -ENOENT;
	op_reply_entry(req, r, i, &st);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, bool is_dir)
{
	struct union_fs *t = &op_mount(req)->tree;
	struct inode *dir = op_inode(req, parent);
	int r;

	if (!dir)
		return;
	resend_state_begin_names(req, INTENT_REMOVE, parent, name, 0, NULL);
	r = protect_may_remove(op_mount(req), dir, name);
	if (r < 0)
		;
	else if (negotiate_request_extra.is_resent)
		r = replay_remove(t, dir, name, is_dir);
	else
		r = is_dir ? remove_dir(t, dir, name) : remove_file(t, dir, name);
	op_reply_err(req, r);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, false);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, true);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		      const char *newname, unsigned int flags)
{
	struct mount *m = op_mount(req);
	struct inode *from = op_inode(req, parent), *to = from ? op_inode(req, newparent) : NULL;
	unsigned attempts = 0;
	struct intent *n;
	int r;

	if (!to)
		return;
	/* A request that is resent may be done already. */
	if (!negotiate_request_extra.is_resent &&
	    (!rollback_notify_is_known(m, parent, name) ||
	     ((flags & RENAME_EXCHANGE) && !rollback_notify_is_known(m, newparent, newname)))) {
		op_reply_err(req, -ESTALE);
		return;
	}
	n = resend_state_begin_names(req, flags & RENAME_EXCHANGE ? INTENT_EXCHANGE : INTENT_RENAME,
				     parent, name, newparent, newname);
	do {
		r = protect_may_remove(m, from, name) ?: protect_may_replace(m, to, newname);
		if (r < 0)
			;
		else if (negotiate_request_extra.is_resent)
			r = replay_rename(&m->tree, n,
					  &(struct replay_names){ from, name, to, newname }, flags);
		else
			r = rename_entry(&m->tree, from, name, to, newname, flags);
	} while (op_data_waits_for_room(req, r, &attempts));
	op_reply_err(req, r);
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
