// SPDX-License-Identifier: Apache-2.0
#include "op.h"
#include "page_fill.h"

#include "veneer/base/minmax.h"
#include "veneer/data/attr.h"
#include "veneer/data/cow.h"
#include "veneer/fuse/rollback_notify.h"
#include "veneer/union/lookup.h"
#include "veneer/union/quota.h"

#include <dirent.h>
#include <string.h>
#include <sys/statvfs.h>

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = op_mount(req);
	struct inode *dir = op_inode(req, parent), *i = NULL;
	struct stat st;
	int r;

	if (!dir)
		return;
	r = strlen(name) > NAME_MAX ? -ENAMETOOLONG : lookup_name(&m->tree, dir, name, &i, &st);
	rollback_notify_looked_up(m, parent, name);
	if (r == -ENOENT) {
		/* A negative entry: the kernel remembers that there is nothing. */
		struct fuse_entry_param none = { .entry_timeout = m->opts.timeout_s };

		negotiate_request_extra.result = -ENOENT;
		if (m->opts.timeout_s > 0)
			fuse_reply_entry(req, &none);
		else
			op_reply_err(req, -ENOENT);
		return;
	}
	if (r == 0 && inode_is_listed_names_only(dir) && !inode_is_dir(i))
		readdirplus_policy_wants(&m->readdirplus_policy, (uint32_t)fuse_req_ctx(req)->pid);
	op_reply_entry(req, r, i, &st);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	inode_forget(&op_mount(req)->tree, ino, nlookup);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t n = 0; n < count; n++)
		inode_forget(&op_mount(req)->tree, forgets[n].ino, forgets[n].nlookup);
	fuse_reply_none(req);
}

static void reply_attr(fuse_req_t req, struct inode *i, fuse_ino_t ino)
{
	struct mount *m = op_mount(req);
	struct stat st;
	int r = lookup_stat(&m->tree, i, &st);

	if (r < 0) {
		if (negotiate_request_extra.renewed)
			op_forget_attributes(i);
		op_reply_err(req, r);
		return;
	}
	if (i == m->tree.root)
		mount_present_root_ids(m, &st);
	else
		mount_present_ids(m, &st);
	fuse_reply_attr(req, &st, op_attr_timeout(m, i, ino));
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = op_inode(req, ino);

	(void)fi;
	if (i)
		reply_attr(req, i, ino);
}

/* A file that its group cannot execute keeps its set-group-id bit only if the caller is in that
 * group. */
static bool loses_setgid(fuse_req_t req, struct inode *i)
{
	struct stat st;

	return !inode_is_dir(i) && lookup_stat(&op_mount(req)->tree, i, &st) == 0 &&
	       (st.st_mode & (S_ISGID | S_IXGRP)) == S_ISGID && !caller_may_setgid(req, st.st_gid);
}

static int set_owner(fuse_req_t req, struct inode *i, const struct stat *attr, int to_set)
{
	struct mount *m = op_mount(req);
	uid_t uid = to_set & FUSE_SET_ATTR_UID ? mount_uid_to_disk(m, attr->st_uid) : (uid_t)-1;
	gid_t gid = to_set & FUSE_SET_ATTR_GID ? mount_gid_to_disk(m, attr->st_gid) : (gid_t)-1;
	bool has_lost = loses_setgid(req, i);
	struct attr_setid setid;
	int r;

	attr_setid_begin(&m->tree, i, false, false, &setid);
	setid.mode = 0; /* the bits that chown clears stay clear */
	/* As without a mapping in a user namespace; the overflow id would be another owner than was
	 * asked for. But Podman gives the root of a mount that it finds to an id of the host before
	 * it compares the files in it. */
	if ((to_set & FUSE_SET_ATTR_UID && !mount_has_uid(m, attr->st_uid)) ||
	    (to_set & FUSE_SET_ATTR_GID && !mount_has_gid(m, attr->st_gid)))
		r = i == m->tree.root ? 0 : -EINVAL;
	else
		r = attr_chown(&m->tree, i, uid, gid);
	if (r == 0 && has_lost)
		r = attr_kill_setid(&m->tree, i, NULL, NULL);
	r = attr_setid_end(&m->tree, i, &setid, r);
	return r < 0 && mount_squashes(m) ? 0 : r;
}

static struct timespec time_of(int to_set, int is_set, int is_now, struct timespec given)
{
	if (to_set & is_now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return to_set & is_set ? given : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(struct mount *m, struct inode *i, const struct stat *attr, int to_set)
{
	const struct timespec times[2] = {
		time_of(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
		time_of(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
	};

	return attr_utimens(&m->tree, i, times);
}

static int set_mode(struct mount *m, struct inode *i, mode_t mode)
{
	struct attr_setid setid;
	int r;

	attr_setid_begin(&m->tree, i, false, false, &setid);
	r = attr_chmod(&m->tree, i, mode);
	setid.mode = 0; /* the new mode stands from now on */
	return attr_setid_end(&m->tree, i, &setid, r);
}

static int set_size(fuse_req_t req, struct inode *i, off_t size)
{
	struct mount *m = op_mount(req);
	struct attr_setid setid;
	int r = killpriv_begin(req, i, false, &setid);

	if (r == 0)
		r = cow_truncate(&m->tree, i, size);
	return killpriv_end(m, i, &setid, r);
}

/* A resize by a former id does not reach the pages that the kernel has by the current one. After
 * ESTALE of a path the kernel looks the name up again. */
static int check_resizable(struct inode *i, fuse_ino_t ino, int to_set)
{
	return to_set & FUSE_SET_ATTR_SIZE && !inode_is_current(i, ino) ? -ESTALE : 0;
}

/* An open for reading with O_TRUNC arrives as an OPEN, which may get the lower file, and then this
 * SETATTR without a handle. Renumber the inode: the kernel repeats both by another id. */
static int leave_lower(struct mount *m, struct inode *i, fuse_ino_t ino, int to_set,
		       const struct fuse_file_info *fi)
{
	return to_set & FUSE_SET_ATTR_SIZE && !fi && inode_is_regular(i)
		       ? op_open_leave_lower(m, i, ino)
		       : 0;
}

static int set_all(fuse_req_t req, struct inode *i, const struct stat *attr, int to_set)
{
	const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
			  FUSE_SET_ATTR_MTIME_NOW;
	struct mount *m = op_mount(req);
	int r = 0;

	if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		r = set_owner(req, i, attr, to_set);
	if (r == 0 && to_set & FUSE_SET_ATTR_MODE)
		r = set_mode(m, i, attr->st_mode);
	if (r == 0 && to_set & FUSE_SET_ATTR_SIZE)
		r = inode_is_regular(i) ? set_size(req, i, attr->st_size) : -EINVAL;
	if (r == 0 && to_set & times)
		r = set_times(m, i, attr, to_set);
	return r;
}

/* The kernel, which keeps the times, has set the change time itself: after a write, and after
 * unlink(2), rename(2), link(2) and setxattr(2). It takes no attributes from the reply. */
static bool is_flush_of_times(int to_set)
{
	return to_set == (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME);
}

/* A file that goes is not copied up first, for a modification time that it has anyway. */
static bool is_lower_as_it_was(struct mount *m, struct inode *i, const struct stat *attr)
{
	struct stat st;

	return !inode_has_upper(i) && lookup_stat(&m->tree, i, &st) == 0 &&
	       st.st_mtim.tv_sec == attr->st_mtim.tv_sec &&
	       st.st_mtim.tv_nsec == attr->st_mtim.tv_nsec;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	const bool is_flush = is_flush_of_times(to_set);
	unsigned attempts = 0;
	int r = 0;

	if (!i)
		return;
	if (is_flush && is_lower_as_it_was(m, i, attr)) {
		reply_attr(req, i, ino);
		return;
	}
	/* Sent with all else while the kernel keeps writes; no call sets it. */
	to_set &= ~FUSE_SET_ATTR_CTIME;
	if (!m->tree.upper)
		r = -EROFS;
	/* Before a write the kernel sends a SETATTR of nothing, which is no change. */
	if (r == 0 && to_set)
		r = protect_may_change(m, i);
	if (r == 0)
		r = check_resizable(i, ino, to_set);
	if (r == 0)
		r = leave_lower(m, i, ino, to_set, fi);
	resend_state_change_begin(req, i);
	/* A failure drops them below. */
	if (!is_flush)
		negotiate_request_extra.renewed = ino;
	if (to_set & FUSE_SET_ATTR_SIZE)
		page_fill_wait(i);
	if (r == 0 && !to_set)
		r = killpriv_lose(req, i, ino);
	if (r == 0)
		do {
			r = set_all(req, i, attr, to_set);
		} while (op_data_waits_for_room(req, r, &attempts));
	attr_change_end(i);
	/* If the inode got another id meanwhile, the kernel repeats it by that. */
	if (r == 0)
		r = check_resizable(i, ino, to_set);
	op_changed(i, ino);
	if (r < 0) {
		/* A part of it may be done. */
		op_forget_attributes(i);
		op_reply_err(req, r);
	} else {
		reply_attr(req, i, ino);
	}
}

static void limit(fsblkcnt_t *total, fsblkcnt_t *left, uint64_t max, uint64_t taken)
{
	const uint64_t rest = max > taken ? max - taken : 0;

	*total = max < *total ? max : *total;
	*left = rest < *left ? rest : *left;
}

/* Show the quota's size as the file system's, and no more room than the file system has left. */
static void apply_quota(struct quota *q, struct statvfs *fs)
{
	struct quota_usage u;
	uint64_t block = fs->f_frsize ? fs->f_frsize : 1, taken;

	if (!quota_usage(q, &u))
		return;
	taken = (u.bytes + block - 1) / block;
	if (u.max_bytes) {
		limit(&fs->f_blocks, &fs->f_bavail, u.max_bytes / block, taken);
		fs->f_bfree = MIN(fs->f_bfree, fs->f_bavail);
	}
	if (u.max_inodes) {
		/* btrfs has no limit of inodes, and says 0. */
		if (!fs->f_files)
			fs->f_files = fs->f_favail = UINT64_MAX;
		limit(&fs->f_files, &fs->f_favail, u.max_inodes, u.inodes);
		fs->f_ffree = fs->f_favail;
	}
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = op_mount(req);
	struct layer *const *layers;
	struct statvfs fs;

	(void)ino;
	image_layers(m->tree.image, &layers);
	if (fstatvfs(m->tree.upper ? m->tree.upper->rootfd : layers[0]->rootfd, &fs) < 0) {
		op_reply_err(req, -errno);
		return;
	}
	apply_quota(m->tree.quota, &fs);
	/* A whiteout of the other dialect is four bytes longer than the name it hides. */
	if (m->tree.upper && !m->tree.style.has_device && fs.f_namemax > WHITEOUT_PREFIX_LEN)
		fs.f_namemax -= WHITEOUT_PREFIX_LEN;
	fuse_reply_statfs(req, &fs);
}

void op_meta_install(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
	ops->statfs = op_statfs;
}
