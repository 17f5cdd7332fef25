// SPDX-License-Identifier: Apache-2.0
#include "op.h"

#include "kernel_invalidate.h"
#include "veneer/union/lookup.h"

struct inode *op_inode(fuse_req_t req, fuse_ino_t ino)
{
	struct union_fs *t = &op_mount(req)->tree;
	struct inode *i = inode_get(t, ino);
	int r = i ? lookup_restore(t, i) : -ESTALE;

	if (r < 0)
		op_reply_err(req, r);
	return r < 0 ? NULL : i;
}

double op_attr_timeout(struct mount *m, struct inode *i, uint64_t node)
{
	/* The kernel does not know that a change by one of two node ids is a change of the
	 * other. */
	return inode_changes_unheard(i, node) ? 0 : m->opts.timeout_s;
}

void op_fill_entry(struct mount *m, struct inode *i, struct stat *st, struct fuse_entry_param *e)
{
	uint32_t id, generation;

	mount_present_ids(m, st);
	inode_grant(&m->tree, i, &id, &generation);
	*e = (struct fuse_entry_param){
		.ino = id,
		.generation = generation,
		.attr = *st,
		.attr_timeout = op_attr_timeout(m, i, id),
		.entry_timeout = m->opts.timeout_s,
	};
}

void op_reply_entry(fuse_req_t req, int r, struct inode *i, struct stat *st)
{
	struct mount *m = op_mount(req);
	struct fuse_entry_param e;

	if (r < 0) {
		op_reply_err(req, r);
		return;
	}
	op_fill_entry(m, i, st, &e);
	/* An interrupted caller gets no reply. */
	if (fuse_reply_entry(req, &e) == -ENOENT)
		inode_forget(&m->tree, e.ino, 1);
}

void op_forget_attributes(struct inode *i)
{
	fuse_lowlevel_notify_inval_inode(negotiate_request_extra.session, inode_id(i), -1, 0);
}

void op_changed(struct inode *i, fuse_ino_t ino)
{
	if (!inode_is_current(i, ino))
		op_forget_attributes(i);
}

void op_touched(struct union_fs *t, struct inode *i)
{
	struct mount *m = container_of(t, struct mount, tree);

	if (negotiate_request_extra.renewed && inode_is_current(i, negotiate_request_extra.renewed))
		return;
	/* Background work answers no request. The kernel invalidates attributes alone without
	 * waiting. */
	if (negotiate_request_extra.session)
		kernel_invalidate_forget_pages(negotiate_request_extra.notify_fd,
					       m->node_base | inode_id(i), -1, 0);
}
