// SPDX-License-Identifier: Apache-2.0
#include "op.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/attr.h"
#include "veneer/data/replay.h"
#include "veneer/mount/workdir.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/xattr.h>

/* As op_inode, of a mount that has attributes. */
static struct inode *find_inode(fuse_req_t req, fuse_ino_t ino)
{
	if (!op_mount(req)->opts.has_no_xattrs)
		return op_inode(req, ino);
	/* The kernel stops asking. */
	op_reply_err(req, -ENOSYS);
	return NULL;
}

static bool is_acl(const char *name)
{
	return !strncmp(name, "system.posix_acl_", 17);
}

/* As a local file system calls capable() when it lists. */
static bool sees_trusted(void *req)
{
	return caller_has_cap(req, CAP_SYS_ADMIN);
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

/* The value is a path of the host: only processes that may unmount, and so see the host, get it. */
static ssize_t work_handle(fuse_req_t req, const struct inode *i, char *value, size_t size)
{
	const struct mount *m = op_mount(req);
	char text[WORKDIR_HANDLE_SIZE];
	int n;

	if (i != m->tree.root || m->tree.workfd < 0 || m->is_frozen || !caller_may_unmount(req))
		return -ENODATA;
	n = workdir_handle(m->opts.work, &m->work, text);
	if (n < 0 || !size)
		return n;
	if ((size_t)n > size)
		return -ERANGE;
	memcpy(value, text, (size_t)n);
	return n;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(freep) char *value = size ? malloc(size) : NULL;
	struct inode *i = find_inode(req, ino);
	ssize_t n;

	if (!i)
		return;
	if (size && !value) {
		op_reply_err(req, -ENOMEM);
		return;
	}
	if (!strcmp(name, WORKDIR_ATTR))
		n = work_handle(req, i, value, size);
	else
		n = attr_getxattr(&op_mount(req)->tree, i, name, value, size);
	if (n > 0 && size && is_acl(name))
		mount_present_acl(op_mount(req), value, (size_t)n);
	answer(req, n, value, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(freep) char *list = size ? malloc(size) : NULL;
	struct inode *i = find_inode(req, ino);

	if (!i)
		return;
	if (size && !list)
		op_reply_err(req, -ENOMEM);
	else
		answer(req, attr_listxattr(&op_mount(req)->tree, i, sees_trusted, req, list, size),
		       list, size);
}

static int set_acl(fuse_req_t req, struct inode *i, const char *name, const void *value,
		   size_t size, int flags)
{
	_cleanup_(freep) char *copy = malloc(size + !size);
	struct mount *m = op_mount(req);
	struct attr_setid setid;
	int r;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, value, size);
	r = mount_acl_to_disk(m, copy, size);
	/* Under the lock no write puts back set-id bits that are lost here. */
	attr_setid_begin(&m->tree, i, false, false, &setid);
	setid.mode = 0;
	if (r == 0)
		r = attr_setxattr(&m->tree, i, name, copy, size, flags);
	/* The kernel says when the caller may not keep the bit, which chmod(2) would clear too. */
	if (r == 0 && negotiate_request_extra.kills_acl_setgid)
		r = attr_kill_setgid(&m->tree, i);
	return attr_setid_end(&m->tree, i, &setid, r);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	struct inode *i = find_inode(req, ino);
	struct intent *n = NULL;
	unsigned attempts = 0;
	int r;

	if (!i)
		return;
	r = protect_may_change(op_mount(req), i);
	if (r < 0) {
		op_reply_err(req, r);
		return;
	}
	if (flags == XATTR_CREATE && !is_acl(name))
		n = resend_state_begin(req, INTENT_SETXATTR);
	resend_state_change_begin(req, i);
	do {
		if (is_acl(name))
			r = set_acl(req, i, name, value, size, flags);
		else if (flags == XATTR_CREATE)
			r = replay_setxattr(&op_mount(req)->tree, i, n, name, value, size);
		else
			r = attr_setxattr(&op_mount(req)->tree, i, name, value, size, flags);
	} while (op_data_waits_for_room(req, r, &attempts));
	attr_change_end(i);
	/* An ACL changes the mode; with noacl the kernel does not know that. */
	if (is_acl(name))
		op_forget_attributes(i);
	op_changed(i, ino);
	op_reply_err(req, r);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct inode *i = find_inode(req, ino);
	int r;

	if (!i)
		return;
	r = protect_may_change(op_mount(req), i);
	resend_state_change_begin(req, i);
	if (r == 0)
		r = replay_removexattr(&op_mount(req)->tree, i,
				       resend_state_begin(req, INTENT_REMOVEXATTR), name);
	attr_change_end(i);
	if (r == 0 && !strcmp(name, "security.capability"))
		killpriv_note_capability_lost(req, i);
	op_changed(i, ino);
	op_reply_err(req, r);
}

void op_xattr_install(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_removexattr;
}
