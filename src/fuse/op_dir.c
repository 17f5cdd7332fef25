// SPDX-License-Identifier: Apache-2.0
#include "op.h"

#include "veneer/base/cleanup.h"
#include "veneer/jobs/readdir_ahead.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <string.h>

#define POS_DOTS 2 /* offsets 1 and 2 stand behind "." and ".." */

struct answer {
	fuse_req_t req;
	struct mount *m;
	char *buf;
	size_t len, size;
	bool is_plus;
	enum readdirplus_policy_listing listing; /* of attributes, if any come */
	size_t n_names_only; /* names that came without, although they might have had them */
};

static uint64_t parent_ino(struct mount *m, struct inode *dir)
{
	char name[NAME_MAX + 1];
	struct inode *parent;
	uint64_t ino = inode_ino(dir);

	if (inode_any_name(&m->tree, dir, &parent, name) == 0) {
		ino = inode_ino(parent);
		inode_unref(&m->tree, parent);
	}
	return ino;
}

/* False when there is no room: nothing was added. */
static bool add_dot(struct answer *a, const char *name, uint64_t ino, off_t next)
{
	struct fuse_entry_param e = { .attr = { .st_ino = ino, .st_mode = S_IFDIR } };
	size_t left = a->size - a->len, n;

	n = a->is_plus ? fuse_add_direntry_plus(a->req, a->buf + a->len, left, name, &e, next)
		       : fuse_add_direntry(a->req, a->buf + a->len, left, name, &e.attr, next);
	if (n > left)
		return false;
	a->len += n;
	return true;
}

/* Directories always come with attributes: a walk of a tree needs them. */
static bool is_unresolved(const struct answer *a, const struct lookup_entry *entry)
{
	if (a->listing == READDIRPLUS_POLICY_LIST_PROBE)
		return entry->type == DT_REG && !a->n_names_only;
	return a->listing == READDIRPLUS_POLICY_LIST_NAMES && entry->type != DT_DIR &&
	       entry->type != DT_UNKNOWN;
}

/* 1 added, 0 no room, -errno. An entry that vanished meanwhile counts as added. */
static int add_entry(struct answer *a, struct inode *dir, const struct lookup_entry *entry,
		     off_t next)
{
	struct stat st = { .st_ino = entry->ino, .st_mode = DTTOIF(entry->type) };
	size_t left = a->size - a->len, n;
	struct fuse_entry_param e;
	struct inode *i;
	int r;

	if (!a->is_plus) {
		n = fuse_add_direntry(a->req, a->buf + a->len, left, entry->name, &st, next);
		if (n <= left)
			a->len += n;
		return n <= left;
	}
	/* The room first: a look-up that does not fit would have to be taken back. */
	n = fuse_add_direntry_plus(a->req, NULL, 0, entry->name, NULL, 0);
	if (n > left)
		return 0;
	if (is_unresolved(a, entry)) {
		e = (struct fuse_entry_param){ .attr = st };
		a->len += fuse_add_direntry_plus(a->req, a->buf + a->len, left, entry->name, &e,
						 next);
		a->n_names_only++;
		return 1;
	}
	r = lookup_name(&a->m->tree, dir, entry->name, &i, &st);
	if (r == -ENOENT)
		return 1;
	if (r < 0) {
		/* List a bad entry, so that it does not hide the others; asked for by name it says
		 * why. */
		st = (struct stat){ .st_ino = entry->ino, .st_mode = DTTOIF(entry->type) };
		e = (struct fuse_entry_param){ .attr = st };
	} else {
		op_fill_entry(a->m, i, &st, &e);
	}
	a->len += fuse_add_direntry_plus(a->req, a->buf + a->len, left, entry->name, &e, next);
	return 1;
}

static int list(struct answer *a, struct inode *dir, off_t off)
{
	struct lookup_entry entry;
	uint64_t pos;
	int r;

	if (off < 1 && !add_dot(a, ".", inode_ino(dir), 1))
		return 0;
	if (off < 2 && !add_dot(a, "..", parent_ino(a->m, dir), POS_DOTS))
		return 0;
	pos = off > POS_DOTS ? (uint64_t)off - POS_DOTS : 0;
	for (;;) {
		r = lookup_next(&a->m->tree, dir, &pos, &entry);
		if (r <= 0)
			return r;
		r = add_entry(a, dir, &entry, (off_t)(pos + POS_DOTS));
		if (r <= 0)
			return r;
	}
}

/* Before anything is listed: a look-up may come as soon as the answer is there. */
static void choose_listing(struct answer *a, struct inode *dir, off_t off)
{
	const uint32_t caller = (uint32_t)fuse_req_ctx(a->req)->pid;

	a->listing = READDIRPLUS_POLICY_LIST_ALL;
	/* Files go out by look-ups alone (shared_sb.c, invariant 2). */
	if (a->m->is_sb_member) {
		a->listing = READDIRPLUS_POLICY_LIST_NAMES;
		return;
	}
	if (a->is_plus && caller && a->m->opts.timeout_s > 0)
		a->listing =
			off == 0 ? readdirplus_policy_begins(&a->m->readdirplus_policy, caller)
				 : readdirplus_policy_goes_on(&a->m->readdirplus_policy, caller);
	if (a->listing != READDIRPLUS_POLICY_LIST_ALL)
		inode_note_listed_names_only(dir);
}

static void answer_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool is_plus)
{
	_cleanup_(freep) char *buf = malloc(size);
	struct answer a = {
		.req = req, .m = op_mount(req), .buf = buf, .size = size, .is_plus = is_plus
	};
	struct inode *dir = op_inode(req, ino);
	int r;

	if (!dir)
		return;
	if (!buf) {
		op_reply_err(req, -ENOMEM);
		return;
	}
	choose_listing(&a, dir, off);
	if (off == 0 && inode_lower(dir))
		readdir_ahead_listed(a.m->readdir_ahead, inode_lower(dir),
				     a.listing != READDIRPLUS_POLICY_LIST_NAMES);
	r = inode_is_orphan(dir) ? 0 : list(&a, dir, off);
	if (!a.m->is_sb_member)
		readdirplus_policy_listed(&a.m->readdirplus_policy,
					  (uint32_t)fuse_req_ctx(req)->pid, a.listing,
					  a.n_names_only);
	/* Send the buffer, as its entries have been counted as looked up; the error comes next
	 * time. */
	if (r < 0 && a.len == 0)
		op_reply_err(req, r);
	else
		fuse_reply_buf(req, buf, a.len);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)fi;
	answer_readdir(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	(void)fi;
	answer_readdir(req, ino, size, off, true);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, ino);
	int fd, r = 0;

	(void)fi;
	(void)datasync;
	if (!dir)
		return;
	if (m->tree.is_volatile) {
		op_reply_err(req, -ENOSYS);
		return;
	}
	if (inode_has_upper(dir)) {
		fd = upper_pin(&m->tree, dir);
		if (fd < 0) {
			r = fd;
		} else {
			r = (m->tree.can.wants_whole_sync ? syncfs(fd) : fsync(fd)) < 0 ? -errno
											: 0;
			upper_unpin(dir);
		}
	}
	op_reply_err(req, r);
}

void op_dir_install(struct fuse_lowlevel_ops *ops)
{
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
	ops->fsyncdir = op_fsyncdir;
}
