// SPDX-License-Identifier: Apache-2.0
#include "staged_copy.h"

#include "partial_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/read.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/sys/file.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"
#include "zero_blocks.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int copy_xattr(int from, int to, const char *attr)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t n = xattr_get_alloc(from, "", attr, &value);
	int r;

	if (n == -ENODATA)
		return 0;
	r = n < 0 ? (int)n : xattr_set(to, "", attr, value, (size_t)n, 0);
	/* The user may not set this label or capability, or the upper cannot hold it. That must not
	 * make the file unwritable; overlayfs proceeds too. */
	return r == -EOPNOTSUPP || (r == -EPERM && strncmp(attr, "user.", 5) != 0) ? 0 : r;
}

/* ACLs come last: one may deny the owner the permission to set the others. */
static int copy_xattrs(int from, int to, bool is_written)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(from, "", &list);
	int r = 0;

	if (len == -EOPNOTSUPP || len == -ENOSYS)
		return 0;
	if (len < 0)
		return (int)len;
	for (int takes_acls = 0; takes_acls < 2; takes_acls++) {
		for (char *a = list; r == 0 && a && a < list + len; a += strlen(a) + 1) {
			const bool is_acl = !strncmp(a, "system.", 7);

			/* A write clears capabilities, also one that comes before the copy is
			 * placed. */
			if (is_acl == takes_acls && !whiteout_is_reserved_attr(a) &&
			    !mode_xattr_is_attr(a) &&
			    !(is_written && !strcmp(a, "security.capability")))
				r = copy_xattr(from, to, a);
		}
	}
	return r;
}

static bool is_overridden(const struct union_fs *t, const struct stat *st)
{
	return t->upper->override && (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode));
}

static int copy_owner(struct union_fs *t, const struct staged_copy *f, const struct stat *st)
{
	if (is_overridden(t, st) || (f->st.st_uid == st->st_uid && f->st.st_gid == st->st_gid))
		return 0;
	return fchownat(f->fd, "", st->st_uid, st->st_gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* After the owner, as chown clears set-id bits. After all attributes, as without privileges they
 * cannot be set on a file that its owner may not write. */
static int copy_mode(struct union_fs *t, const struct staged_copy *f, const struct stat *st)
{
	const mode_t mode = st->st_mode & 07777;
	const bool has_lost_bits = mode & (S_ISUID | S_ISGID) &&
				   (f->st.st_uid != st->st_uid || f->st.st_gid != st->st_gid);

	if (is_overridden(t, st)) {
		const bool has_acl = xattr_get(f->fd, "", "system.posix_acl_access", NULL, 0) > 0;

		if (fchmod(f->fd,
			   (has_acl ? mode_xattr_acl_mode(mode) : mode_xattr_real_mode(mode)) &
				   07777) < 0)
			return -errno;
		return mode_xattr_store(f->fd, t->upper->override, st);
	}
	/* Otherwise it was created with the right mode. */
	if (S_ISLNK(st->st_mode) || (!has_lost_bits && (f->st.st_mode & 07777) == mode))
		return 0;
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
		return fchmod(f->fd, mode) < 0 ? -errno : 0;
	return fchmodat(t->workfd, f->temp, mode, 0) < 0 ? -errno : 0;
}

/* Set the times of the lower file, or those in change. A content change that has been made has set
 * the modification time, and is no access. */
static int copy_times(int fd, const struct stat *st, struct copyup_change *change)
{
	struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (change && change->is_done)
		times[1].tv_nsec = UTIME_OMIT;
	for (int k = 0; change && change->times && k < 2; k++)
		if (change->times[k].tv_nsec != UTIME_OMIT)
			times[k] = change->times[k];
	if (utimensat(fd, "", times, AT_EMPTY_PATH) < 0)
		return -errno;
	if (change && change->times)
		change->is_done = true;
	return 0;
}

/* ---- regular files ---- */

/* Without set-id bits, which filling the file would clear, and writable by the server: copy_mode
 * sets the final mode. */
static int make_regular(struct union_fs *t, mode_t mode, struct staged_copy *f)
{
	mode = (mode & 0777) | 0600;
	*f->temp = '\0';
	if (t->can.has_tmpfile && !t->can.wants_name_sync && !t->can.wants_size_sync) {
		f->fd = openat(t->workfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | upper_quiet_flag(t),
			       mode);
		if (f->fd >= 0)
			return 0;
	}
	upper_temp_name(t, f->temp);
	f->fd = openat(t->workfd, f->temp,
		       O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | upper_quiet_flag(t), mode);
	if (f->fd < 0) {
		*f->temp = '\0';
		return -errno;
	}
	return 0;
}

static int check_size(struct source *src, uint64_t size)
{
	int fd = source_pin(src), r;
	struct stat st;

	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : (uint64_t)st.st_size == size ? 0 : -EIO;
	fd_cache_unpin(&src->fd);
	return r;
}

/* Copy the content; holes stay holes. */
static int copy_bytes(struct source *src, int fd, uint64_t size)
{
	const size_t step = 1u << 20;
	_cleanup_(freep) char *buf = malloc(step);
	off_t data = 0;
	int r;

	if (!buf)
		return -ENOMEM;
	/* A lower file that was truncated under the mount would seem to have a hole at its end. */
	r = check_size(src, size);
	if (r == 0 && ftruncate(fd, (off_t)size) < 0)
		r = -errno;
	if (r < 0)
		return r;
	while ((data = read_source_seek(src, data, (off_t)size, SEEK_DATA)) >= 0) {
		off_t end = read_source_seek(src, data, (off_t)size, SEEK_HOLE);

		if (end <= data)
			return end < 0 ? (int)end : -EIO;
		while (data < end) {
			size_t n = end - data < (off_t)step ? (size_t)(end - data) : step;
			r = read_source(src, buf, n, (uint64_t)data);
			if (r == 0)
				r = file_pwrite(fd, buf, n, data);
			if (r < 0)
				return r;
			data += (off_t)n;
			stats_add(STATS_COPYUP_BYTES, n);
			stats_add(STATS_WHOLE_BYTES, n);
		}
	}
	return data == -ENXIO ? 0 : (int)data;
}

/* No map will state the lower file, so the copy must be on the disk before its name is. */
static int copy_for_good(struct union_fs *t, struct source *src, int fd, uint64_t size)
{
	int r = copy_bytes(src, fd, size);

	return r < 0 || t->is_volatile || fdatasync(fd) == 0 ? r : -errno;
}

/* When a new file's directory or one above is synced, also by another program, btrfs may log only
 * that the file exists. After a power cut the file then has its attributes, and its size of the
 * last log or 0. So log the file before it is placed, under a name in the work directory
 * (doc/decisions/0008). */
static int sync_size(struct union_fs *t, int fd)
{
	return t->can.wants_size_sync && !t->is_volatile && fsync(fd) < 0 ? -errno : 0;
}

/* A small file gets all of its content at once, including the first write: programs that read the
 * raw upper see it whole. For the mount it is a partial file whose blocks are all own, so that a
 * power cut before its data is on the disk leaves the old content instead of an empty file. */
static int copy_small(struct union_fs *t, struct inode *i, int fd, size_t size,
		      struct copyup_change *change)
{
	char buf[COPYUP_WHOLE_MAX];
	bool has_write = change && change->data && change->off <= (off_t)sizeof(buf) &&
			 change->len <= sizeof(buf) - (size_t)change->off;
	size_t end = has_write ? (size_t)change->off + change->len : 0;
	int r = mapfile_reserve(t->map, (COPYUP_WHOLE_MAX >> BLK_SHIFT) + 1);

	if (r == 0 && (!has_write || change->off > 0 || end < size))
		r = read_source(i->src.below, buf, size, 0);
	if (r < 0)
		return r;
	if (has_write) {
		if ((size_t)change->off > size)
			memset(buf + size, 0, (size_t)change->off - size);
		memcpy(buf + change->off, change->data, change->len);
	}
	r = file_pwrite(fd, buf, MAX(end, size), 0);
	if (r == 0)
		r = zero_blocks_note(i, fd, buf, size, 0);
	if (r == 0)
		r = mapfile_own(t->map, i->src.id, 0, (size + BLK_BYTES - 1) >> BLK_SHIFT);
	union_fs_note_own(t);
	if (r == 0)
		stats_add(STATS_COPYUP_BYTES, size);
	if (r == 0 && has_write)
		change->is_done = true;
	return r;
}

/* Can the copy be made with the new attributes? chown clears set-id bits and capabilities, and
 * chmod adapts ACLs: a file that has any of these is changed after the copy. */
static bool takes_attributes(const struct union_fs *t, const struct source *src,
			     const struct stat *st, const struct copyup_change *change)
{
	return change && change->attributes && src->is_unresolved &&
	       !(st->st_mode & (S_ISUID | S_ISGID)) && !is_overridden(t, st);
}

/* The lower file's stat with the owner and mode of the copy. */
static struct stat with_attributes(const struct union_fs *t, const struct source *src,
				   const struct stat *st, const struct copyup_change *change)
{
	struct stat up = *st;

	if (!takes_attributes(t, src, st, change))
		return up;
	if (change->attributes->uid != (uid_t)-1)
		up.st_uid = change->attributes->uid;
	if (change->attributes->gid != (gid_t)-1)
		up.st_gid = change->attributes->gid;
	if (change->attributes->mode != (mode_t)-1)
		up.st_mode = (st->st_mode & S_IFMT) | (change->attributes->mode & 07777);
	return up;
}

/* Make a partial file that shows nothing of the lower file; the mark serves its inode number. */
static int make_emptied(struct union_fs *t, struct inode *i, struct source *src,
			const struct staged_copy *f, const struct stat *st)
{
	int r;

	i->src.below = src;
	r = partial_mark_make(t, i, f->fd, f->has_path, st, st);
	if (r == 0 && ftruncate(f->fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = mapfile_truncate(t->map, i->src.id, 0);
	return r;
}

static int fill_data(struct union_fs *t, struct inode *i, const struct stat *st, struct source *src,
		     struct copyup_change *change, struct staged_copy *f)
{
	const struct stat up = with_attributes(t, src, st, change);

	int r;

	if (change && change->is_emptied) {
		change->is_done = true;
		return t->copies_whole ? 0 : make_emptied(t, i, src, f, st);
	}
	if (t->copies_whole)
		return copy_for_good(t, src, f->fd, (uint64_t)st->st_size);
	i->src.below = src;
	f->whole_bytes = (uint64_t)st->st_size;
	r = partial_mark_make(t, i, f->fd, f->has_path, st, &up);
	/* Sync before there is data, which the sync would have to wait for. */
	if (r == 0 && st->st_size > 0)
		r = f->is_nameless ? 0 : sync_size(t, f->fd);
	if (r == 0 && change && !change->keeps_content && st->st_size > 0 &&
	    st->st_size <= (off_t)COPYUP_WHOLE_MAX)
		r = copy_small(t, i, f->fd, (size_t)st->st_size, change);
	return r;
}

/* Only this attribute gives a copy that is not partial the inode number of its lower file. */
static void note_origin(struct union_fs *t, struct inode *i, int fd)
{
	_cleanup_(freep) char *path = image_path(i->lower);

	if (path)
		origin_xattr_write(&t->style, fd, path);
}

static int fill_regular(struct union_fs *t, struct inode *i, const struct stat *st,
			struct copyup_change *change, struct staged_copy *f)
{
	struct source *src;
	int fd, r = image_source(t->image, i->lower, &src);
	struct stat up;

	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	fd = source_pin(src);
	if (fd < 0)
		return fd;
	up = with_attributes(t, src, st, change);
	r = fill_data(t, i, st, src, change, f);
	/* After the data: writing and truncating clear set-id bits and capabilities. */
	if (r == 0)
		r = copy_owner(t, f, &up);
	if (r == 0 && !i->src.id)
		note_origin(t, i, f->fd);
	if (r == 0 && !src->is_unresolved)
		r = copy_xattrs(fd, f->fd, change && change->is_done);
	fd_cache_unpin(&src->fd);
	if (r == 0)
		r = copy_mode(t, f, &up);
	if (r == 0)
		r = copy_times(f->fd, st, change);
	if (r == 0 && takes_attributes(t, src, st, change))
		change->is_done = true;
	return r;
}

/* The same for a file that may be in the upper. */
static int fill_as_shown(struct union_fs *t, struct inode *i, const struct stat *st,
			 const struct staged_copy *f)
{
	struct source *src;
	int fd, r = read_top(t, i, &src);

	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	/* The pin also serves copy_bytes, which does not know inodes. */
	fd = i->has_upper ? upper_pin(t, i) : source_pin(src);
	if (fd < 0)
		return fd;
	r = copy_bytes(src, f->fd, (uint64_t)st->st_size);
	r = r ?: copy_owner(t, f, st);
	r = r ?: copy_xattrs(fd, f->fd, false);
	r = r ?: copy_mode(t, f, st);
	fd_cache_unpin(&src->fd);
	return r ?: copy_times(f->fd, st, NULL);
}

int staged_copy_as_shown(struct union_fs *t, struct inode *i, struct staged_copy *f)
{
	struct stat st;
	int r = lookup_stat(t, i, &st);

	r = r ?: make_regular(t, st.st_mode, f);
	if (r == 0 && *f->temp && unlinkat(t->workfd, f->temp, 0) < 0)
		r = -errno;
	if (r < 0)
		return r;
	*f->temp = '\0';
	if (fstat(f->fd, &f->st) < 0)
		return -errno;
	RDLOCK_SCOPE(&i->lock);
	return fill_as_shown(t, i, &st, f);
}

/* ---- everything else ---- */

static int make_directory(struct union_fs *t, const struct stat *st, struct staged_copy *f)
{
	upper_temp_name(t, f->temp);
	if (mkdirat(t->workfd, f->temp, (st->st_mode & 07777) | 0700) < 0) {
		*f->temp = '\0';
		return -errno;
	}
	f->fd = openat(t->workfd, f->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return f->fd < 0 ? -errno : 0;
}

static int make_symlink(struct union_fs *t, int from, struct staged_copy *f)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(from, "", target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	upper_temp_name(t, f->temp);
	if (symlinkat(target, t->workfd, f->temp) < 0) {
		*f->temp = '\0';
		return -errno;
	}
	f->fd = openat(t->workfd, f->temp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return f->fd < 0 ? -errno : 0;
}

static int make_special(struct union_fs *t, const struct stat *st, struct staged_copy *f)
{
	upper_temp_name(t, f->temp);
	if (mknodat(t->workfd, f->temp, st->st_mode, st->st_rdev) < 0) {
		*f->temp = '\0';
		return -errno;
	}
	f->fd = openat(t->workfd, f->temp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return f->fd < 0 ? -errno : 0;
}

static int make_other(struct union_fs *t, struct inode *i, const struct stat *st,
		      struct copyup_change *change, struct staged_copy *f)
{
	_cleanup_(closep) int from = image_open_path(t->image, i->lower);
	int r;

	if (from < 0)
		return from;
	switch (i->type) {
	case DT_DIR:
		r = make_directory(t, st, f);
		break;
	case DT_LNK:
		r = make_symlink(t, from, f);
		break;
	default:
		r = make_special(t, st, f);
	}
	if (r == 0)
		r = fstat(f->fd, &f->st) < 0 ? -errno : copy_owner(t, f, st);
	if (r == 0 && i->type != DT_DIR)
		note_origin(t, i, f->fd);
	if (r == 0)
		r = copy_xattrs(from, f->fd, false);
	if (r == 0)
		r = copy_mode(t, f, st);
	if (r == 0)
		r = copy_times(f->fd, st, change);
	return r;
}

/* ---- all of them ---- */

int staged_copy_make(struct union_fs *t, struct inode *i, struct copyup_change *change,
		     struct staged_copy *f)
{
	struct stat st;
	int r = image_stat(t->image, i->lower, &st);

	if (r < 0)
		return r;
	if (i->type != DT_REG)
		return make_other(t, i, &st, change, f);
	r = make_regular(t, st.st_mode, f);
	if (r < 0)
		return r;
	return fstat(f->fd, &f->st) < 0 ? -errno : fill_regular(t, i, &st, change, f);
}

bool staged_copy_discard(struct union_fs *t, struct staged_copy *f, bool is_dir)
{
	struct stat st;
	bool is_left;

	if (*f->temp)
		unlinkat(t->workfd, f->temp, is_dir ? AT_REMOVEDIR : 0);
	is_left = f->fd >= 0 && !is_dir && (fstat(f->fd, &st) < 0 || st.st_nlink > 0);
	closep(&f->fd);
	return !is_left;
}
