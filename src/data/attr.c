// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/attr.h"

#include "partial_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/data/copyup.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CAPABILITY "security.capability"
#define ACCESS_ACL "system.posix_acl_access"

/* The upper object of i, copied up if need be, pinned. */
static int pin_upper(struct union_fs *t, struct inode *i)
{
	int r = copyup_inode(t, i, NULL);

	return r < 0 ? r : upper_pin(t, i);
}

/* Copy a lower file up with another owner or mode. 1: done; 0: the copy exists, and the caller
 * changes it by the pinned descriptor in *ret; -errno. */
static int copyup_changed(struct union_fs *t, struct inode *i, const struct copyup_attributes *a,
			  int *ret)
{
	struct copyup_change change = { .keeps_content = true, .attributes = a };
	int r = copyup_inode(t, i, &change);

	if (r < 0 || change.is_done)
		return r < 0 ? r : 1;
	*ret = upper_pin(t, i);
	return *ret < 0 ? *ret : 0;
}

/* Materializing changes some attributes of a partial file for a moment and restores them, with the
 * file locked (materialize.h). An attribute change takes the lock for reading, so that no caller
 * sees the interim values and no change is lost. */
static bool hold_attributes(struct inode *i) UNCHECKED_LOCKS
{
	const bool is_partial = i->type == DT_REG && i->has_upper && i->src.id;

	if (is_partial)
		rwlock_rdlock(&i->lock);
	return is_partial;
}

static void let_attributes_go(struct inode *i, bool is_held) UNCHECKED_LOCKS
{
	if (is_held)
		rwlock_unlock(&i->lock);
}

static bool is_overridden(const struct union_fs *t, const struct inode *i)
{
	return t->upper && t->upper->override && (i->type == DT_REG || i->type == DT_DIR);
}

/* Change the owner and mode that are stored in an attribute. -1 leaves a value unchanged. */
static int change_override(struct union_fs *t, struct inode *i, int fd, uid_t uid, gid_t gid,
			   mode_t mode)
{
	struct stat st;
	int r = lookup_stat(t, i, &st);

	if (r < 0)
		return r;
	if (uid != (uid_t)-1)
		st.st_uid = uid;
	if (gid != (gid_t)-1)
		st.st_gid = gid;
	if (mode != (mode_t)-1) {
		st.st_mode = (st.st_mode & S_IFMT) | (mode & 07777);
	} else if (S_ISREG(st.st_mode)) { /* as chown does */
		st.st_mode &= ~(mode_t)(S_ISUID | (st.st_mode & S_IXGRP ? S_ISGID : 0));
		xattr_remove(fd, "", CAPABILITY);
	}
	return mode_xattr_store(fd, t->upper->override, &st);
}

/* Change a mode that is stored in an attribute. The file system limits the grants of an access ACL
 * by the real mode. So with such an ACL a change of the mode in the attribute also changes the real
 * mode, and the reverse. The owner's bits are independent of the ACL, and the server may need them
 * to open the file. */
static int chmod_override(struct union_fs *t, struct inode *i, int fd, mode_t mode)
{
	int r = change_override(t, i, fd, (uid_t)-1, (gid_t)-1, mode);
	bool is_held;

	if (r < 0 || xattr_get(fd, "", ACCESS_ACL, NULL, 0) <= 0)
		return r;
	is_held = hold_attributes(i);
	r = fchmod(fd, mode_xattr_acl_mode(mode) & 07777) < 0 ? -errno : 0;
	let_attributes_go(i, is_held);
	return r;
}

static int take_mode_of_acl(struct union_fs *t, struct inode *i, int fd)
{
	struct stat real, st;
	int r = fstat(fd, &real) < 0 ? -errno : lookup_stat(t, i, &st);

	if (r == 0)
		r = mode_xattr_keep_access(fd, real.st_mode);
	if (r == 0)
		r = change_override(t, i, fd, (uid_t)-1, (gid_t)-1,
				    (st.st_mode & 07000) | (real.st_mode & 0777));
	return r;
}

/* Called before a partial file gets another owner or mode. A user who may then write the file, but
 * may not read the lower file, could have forged its mark. So the mark needs the seal that comes
 * with a path. -1 leaves a value unchanged. */
static int seal_before(struct union_fs *t, struct inode *i, int fd, uid_t uid, gid_t gid,
		       mode_t mode)
{
	struct stat up, low;
	int r;

	if (i->type != DT_REG || !i->src.id || !i->src.below || !t->style.has_trusted)
		return 0;
	r = fstat(fd, &up) < 0 ? -errno : 0;
	r = r ?: i->lower ? image_stat(t->image, i->lower, &low) : source_stat(i->src.below, &low);
	if (r < 0)
		return r;
	up.st_uid = uid != (uid_t)-1 ? uid : up.st_uid;
	up.st_gid = gid != (gid_t)-1 ? gid : up.st_gid;
	up.st_mode = mode != (mode_t)-1 ? mode : up.st_mode;
	if (xattr_trust_covers(&up, xattr_get(fd, "", ACCESS_ACL, NULL, 0) > 0, false, &low))
		return 0;
	return partial_mark_fix(t, i, &up);
}

int attr_chmod(struct union_fs *t, struct inode *i, mode_t mode)
{
	const struct copyup_attributes a = { (uid_t)-1, (gid_t)-1, mode };
	bool is_held = false;
	int fd, r = copyup_changed(t, i, &a, &fd);

	if (r)
		return r < 0 ? r : 0;
	r = seal_before(t, i, fd, (uid_t)-1, (gid_t)-1, mode);
	if (r < 0) {
		fd_cache_unpin(&i->src.fd);
		return r;
	}
	if (is_overridden(t, i)) {
		r = chmod_override(t, i, fd, mode);
		upper_forget_group(i);
		fd_cache_unpin(&i->src.fd);
		return r;
	}
	if (i->type == DT_REG || i->type == DT_DIR) {
		is_held = hold_attributes(i);
		r = mode_relax_chmod(fd, mode & 07777);
	} else {
		char proc[32];

		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		r = chmod(proc, mode & 07777) < 0 ? -errno : 0;
	}
	let_attributes_go(i, is_held);
	upper_forget_group(i);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int attr_chown(struct union_fs *t, struct inode *i, uid_t uid, gid_t gid)
{
	const struct copyup_attributes a = { uid, gid, (mode_t)-1 };
	int fd, r = copyup_changed(t, i, &a, &fd);

	if (r)
		return r < 0 ? r : 0;
	r = seal_before(t, i, fd, uid, gid, (mode_t)-1);
	if (r == 0 && is_overridden(t, i)) {
		r = change_override(t, i, fd, uid, gid, (mode_t)-1);
	} else if (r == 0) {
		const bool is_held = hold_attributes(i);

		r = fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
		let_attributes_go(i, is_held);
	}
	upper_forget_group(i);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int attr_utimens(struct union_fs *t, struct inode *i, const struct timespec times[2])
{
	struct copyup_change change = { .keeps_content = true, .times = times };
	bool is_held;
	int fd, r = copyup_inode(t, i, &change);

	if (r < 0 || change.is_done)
		return r;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	is_held = hold_attributes(i);
	r = utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? -errno : 0;
	let_attributes_go(i, is_held);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int attr_without_setid(struct union_fs *t, struct inode *i,
		       bool (*is_in_group)(void *arg, gid_t gid), void *arg, mode_t *ret_mode)
{
	mode_t keep = 07777;
	struct stat st;
	int r = lookup_stat(t, i, &st);

	if (r < 0)
		return r;
	if (st.st_mode & S_ISUID)
		keep &= ~(mode_t)S_ISUID;
	/* Without group execution the bit once meant mandatory locking, and group members may keep
	 * it. */
	if (st.st_mode & S_ISGID &&
	    (st.st_mode & S_IXGRP || !is_in_group || !is_in_group(arg, st.st_gid)))
		keep &= ~(mode_t)S_ISGID;
	if (keep == 07777)
		return 0;
	*ret_mode = st.st_mode & keep;
	return 1;
}

int attr_kill_setid(struct union_fs *t, struct inode *i, bool (*is_in_group)(void *arg, gid_t gid),
		    void *arg)
{
	mode_t mode;
	int r = attr_without_setid(t, i, is_in_group, arg, &mode);

	return r > 0 ? attr_chmod(t, i, mode) : r;
}

int attr_kill_setgid(struct union_fs *t, struct inode *i)
{
	struct stat st;
	int r = lookup_stat(t, i, &st);

	return r == 0 && st.st_mode & S_ISGID
		       ? attr_chmod(t, i, st.st_mode & 07777 & ~(mode_t)S_ISGID)
		       : r;
}

static mutex_t *setid_lock(struct union_fs *t, const struct inode *i)
{
	return &t->setid_locks[i->id % UNION_FS_SETID_LOCKS];
}

static ssize_t read_capability(struct union_fs *t, struct inode *i, struct attr_setid *s)
{
	ssize_t n = attr_getxattr(t, i, CAPABILITY, s->capability, sizeof(s->capability));

	return n > 0 ? n : 0;
}

/* A change that begins later waits for the lock; one that has begun may have passed the lock
 * already. */
static void keep_capability(struct union_fs *t, struct inode *i, struct attr_setid *s)
{
	t->keeping++;
	s->is_keeping = true;
	s->is_disturbed = i->changing > 0;
	s->capability_len = s->is_disturbed ? 0 : read_capability(t, i, s);
}

void attr_setid_begin(struct union_fs *t, struct inode *i, bool keeps_capability, bool is_again,
		      struct attr_setid *s) UNCHECKED_LOCKS
{
	const bool may_keep = keeps_capability &&
			      (is_again || t->keeping || read_capability(t, i, s));
	struct stat st;

	*s = (struct attr_setid){ .lock = NULL };
	if (t->can.has_trusted_xattr && !may_keep && !is_again)
		return;
	s->lock = setid_lock(t, i);
	mutex_lock(s->lock);
	if (may_keep)
		keep_capability(t, i, s);
	if (!t->can.has_trusted_xattr && lookup_stat(t, i, &st) == 0 &&
	    st.st_mode & (S_ISUID | S_ISGID))
		s->mode = st.st_mode & 07777;
}

static int put_back_capability(struct union_fs *t, struct inode *i, const struct attr_setid *s)
{
	struct attr_setid now;

	if (read_capability(t, i, &now) == s->capability_len &&
	    !memcmp(now.capability, s->capability, (size_t)s->capability_len))
		return 0;
	return attr_setxattr(t, i, CAPABILITY, s->capability, (size_t)s->capability_len, 0);
}

static int put_back_mode(struct union_fs *t, struct inode *i, mode_t mode)
{
	struct stat st;
	int r = lookup_stat(t, i, &st);

	return r < 0 || (st.st_mode & 07777) == mode ? r : attr_chmod(t, i, mode);
}

int attr_setid_end(struct union_fs *t, struct inode *i, struct attr_setid *s, int r) UNCHECKED_LOCKS
{
	int e = s->capability_len ? put_back_capability(t, i, s) : 0;

	if (s->lock && s->mode)
		e = put_back_mode(t, i, s->mode) ?: e;
	/* Unmark before unlocking: the next holder of the lock may clear the bits for good. */
	intent_log_unmark(s->noted);
	if (s->is_keeping)
		t->keeping--;
	if (s->lock)
		mutex_unlock(s->lock);
	return r ?: e;
}

void attr_change_begin(struct union_fs *t, struct inode *i, uint64_t key, uint64_t unique)
{
	i->changing++;
	if (!t->keeping && !intent_log_has_setid())
		return;
	LOCK_SCOPE(setid_lock(t, i));
	intent_log_forget_setid(key, unique, inode_for_intent(i));
}

void attr_change_end(struct inode *i)
{
	i->changing--;
}

/* A descriptor to read attributes from: pinned, or its own for a type that is never opened. */
struct reader {
	struct fd_cache_slot *pinned;
	int fd;
	bool is_unresolved; /* the image knows that there are none */
};

static int reader_open_lower(struct union_fs *t, struct inode *i, struct reader *r)
{
	struct source *src;

	r->is_unresolved = image_is_plain(t->image, i->lower);
	if (r->is_unresolved)
		return 0;
	if (i->type == DT_REG && image_source(t->image, i->lower, &src) == 0) {
		r->fd = source_pin(src);
		if (r->fd >= 0) {
			r->pinned = &src->fd;
			return 0;
		}
	}
	r->fd = image_open_path(t->image, i->lower);
	return r->fd < 0 ? r->fd : 0;
}

static int reader_open(struct union_fs *t, struct inode *i, struct reader *r)
{
	*r = (struct reader){ .fd = -1 };
	if (!i->has_upper)
		return reader_open_lower(t, i, r);
	r->fd = upper_pin(t, i);
	r->pinned = &i->src.fd;
	return r->fd < 0 ? r->fd : 0;
}

static void reader_close(struct reader *r)
{
	if (r->fd < 0)
		return;
	if (r->pinned)
		fd_cache_unpin(r->pinned);
	else
		close(r->fd);
}

/* Does a security module interpret security.selinux? */
static bool has_selinux(void)
{
	static _Atomic int known; /* 0: not asked yet; 1: no; 2: yes */
	int k = known;

	if (!k)
		known = k = access("/sys/fs/selinux/enforce", F_OK) == 0 ? 2 : 1;
	return k == 2;
}

/* The ACL in the file system has the real mode. Where the mode is stored in an attribute, put that
 * one into the ACL. */
static void limit_acl(struct union_fs *t, const struct inode *i, int fd, void *value, size_t size)
{
	const char *override = i->has_upper ? t->upper->override
					    : image_override(t->image, i->lower);
	struct stat st;

	if (!override || fstat(fd, &st) < 0)
		return;
	mode_xattr_apply(fd, "", override, &st);
	mode_xattr_limit_acl(value, size, st.st_mode);
}

ssize_t attr_getxattr(struct union_fs *t, struct inode *i, const char *name, void *value,
		      size_t size)
{
	struct reader reader;
	bool is_held;
	ssize_t n;

	if (whiteout_is_reserved_attr(name))
		return -ENODATA;
	n = reader_open(t, i, &reader);
	if (n < 0)
		return n;
	is_held = hold_attributes(i);
	n = reader.is_unresolved ? -ENODATA : xattr_get(reader.fd, "", name, value, size);
	if (n > 0 && size && !strcmp(name, ACCESS_ACL))
		limit_acl(t, i, reader.fd, value, (size_t)n);
	let_attributes_go(i, is_held);
	reader_close(&reader);
	/* Without SELinux, report "not supported" instead of "none": ls -l then stops asking file
	 * by file. An existing label is shown all the same. */
	if (n == -ENODATA && !strcmp(name, "security.selinux") && !has_selinux())
		return -EOPNOTSUPP;
	return n;
}

/* Attributes that a container may not change: the file's owner could make the file root's with
 * them. */
static bool is_protected(const struct union_fs *t, const struct inode *i, const char *name)
{
	if (whiteout_is_reserved_attr(name))
		return true;
	/* On the root this attribute would apply to every other file, from the next mount on. */
	return t->upper && (t->upper->override || i == t->root) && mode_xattr_is_attr(name);
}

static bool is_acl(const char *name)
{
	return !strcmp(name, ACCESS_ACL) || !strcmp(name, UPPER_DEFAULT_ACL);
}

int attr_setxattr(struct union_fs *t, struct inode *i, const char *name, const void *value,
		  size_t size, int flags)
{
	bool is_held;
	int fd, r;

	if (is_protected(t, i, name))
		return -EPERM;
	fd = pin_upper(t, i);
	if (fd < 0)
		return fd;
	/* A user that the ACL names may write the file. */
	r = strcmp(name, ACCESS_ACL) != 0
		    ? 0
		    : seal_before(t, i, fd, (uid_t)-1, (gid_t)-1, S_IRWXU | S_IRWXG | S_IRWXO);
	r = r ?: quota_claim(t->quota, size, 0);
	if (r < 0) {
		fd_cache_unpin(&i->src.fd);
		return r;
	}
	is_held = hold_attributes(i);
	r = xattr_set(fd, "", name, value, size, flags);
	let_attributes_go(i, is_held);
	if (r == 0 && is_overridden(t, i) && !strcmp(name, ACCESS_ACL))
		r = take_mode_of_acl(t, i, fd);
	quota_settle(t->quota, fd, size, 0);
	upper_forget_group(i); /* an ACL may take the set-group-id bit away */
	if (i->dir && !strcmp(name, UPPER_DEFAULT_ACL))
		upper_dir_note_default_acl(i->dir, xattr_get(fd, "", name, NULL, 0) > 0);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int attr_removexattr(struct union_fs *t, struct inode *i, const char *name)
{
	bool is_held;
	ssize_t n;
	int fd, r;

	if (is_protected(t, i, name))
		return -EPERM;
	/* Removing a missing attribute needs no copy-up. */
	n = attr_getxattr(t, i, name, NULL, 0);
	if (n < 0)
		return n == -ENODATA && is_acl(name) ? 0 : (int)n;
	fd = pin_upper(t, i);
	if (fd < 0)
		return fd;
	is_held = hold_attributes(i);
	r = xattr_remove(fd, "", name);
	let_attributes_go(i, is_held);
	if (r == 0 && i->dir && !strcmp(name, UPPER_DEFAULT_ACL))
		upper_dir_note_default_acl(i->dir, false);
	quota_note(t->quota, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}

ssize_t attr_listxattr(struct union_fs *t, struct inode *i, bool (*sees_trusted)(void *arg),
		       void *arg, char *list, size_t size)
{
	bool is_asked = sees_trusted == NULL, is_trusted_shown = true;
	_cleanup_(freep) char *all = NULL;
	struct reader reader;
	size_t need = 0;
	ssize_t len = reader_open(t, i, &reader);

	if (len < 0)
		return len;
	len = reader.is_unresolved ? 0 : xattr_list_alloc(reader.fd, "", &all);
	reader_close(&reader);
	if (len < 0)
		return len;
	for (char *a = all; a && a < all + len; a += strlen(a) + 1) {
		size_t n = strlen(a) + 1;

		if (whiteout_is_reserved_attr(a))
			continue;
		if (!strncmp(a, "trusted.", 8)) {
			if (!is_asked)
				is_trusted_shown = sees_trusted(arg);
			is_asked = true;
			if (!is_trusted_shown)
				continue;
		}
		if (size && need + n > size)
			return -ERANGE;
		if (size)
			memcpy(list + need, a, n);
		need += n;
	}
	return (ssize_t)need;
}

int attr_protection(struct union_fs *t, struct inode *i)
{
	int fd, upper = 0, lower = 0;

	if (i->has_upper) {
		fd = upper_pin(t, i);
		upper = fd < 0 ? fd : image_protection_at(fd, "");
		if (fd >= 0)
			fd_cache_unpin(&i->src.fd);
	}
	if (upper >= 0 && i->lower && (i->type == DT_DIR || !i->has_upper))
		lower = image_protection(t->image, i->lower);
	if (i->has_upper)
		lower = lower < 0 ? lower : lower & (IMAGE_IMMUTABLE | IMAGE_APPEND_ONLY);
	return upper < 0 ? upper : lower < 0 ? lower : upper | lower;
}
