// SPDX-License-Identifier: Apache-2.0
/* Every copy is made without a name, or under a name in the work directory, and then put in its
 * place in one step: a server that dies half-way leaves nothing that could be taken for the file
 * (doc/DESIGN.md, section 5, has the steps). The next one makes it again; publish_recover.c gives a
 * copy with several names those that it lacks. */
#include "veneer/data/copyup.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/publish.h"
#include "veneer/data/read.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/lookup.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"
#include "zero_blocks.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A copy in the making: its descriptor, and its name in the work directory if it has one. */
struct fresh {
	int fd;
	char temp[32];
	struct stat st; /* as it was made, for what need not be set again */
	bool has_path; /* its mark is to say where the lower file is */
	bool is_nameless; /* and stays so */
	uint64_t whole_bytes; /* of a partial file: what copying it whole would copy */
};

static int copy_xattr(int from, int to, const char *attr)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t n = xattr_get_alloc(from, "", attr, &value);
	int r;

	if (n == -ENODATA)
		return 0;
	r = n < 0 ? (int)n : xattr_set(to, "", attr, value, (size_t)n, 0);
	/* A label or capability that this user may not set, or that the upper cannot hold, must not
	 * make the file unwritable: overlayfs goes on too. */
	return r == -EOPNOTSUPP || (r == -EPERM && strncmp(attr, "user.", 5) != 0) ? 0 : r;
}

/* ACLs last: one of them may take from the owner what setting the others takes. */
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

			/* A write takes capabilities away, also one that is done before the file is
			 * seen. */
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

static int copy_owner(struct union_fs *t, const struct fresh *f, const struct stat *st)
{
	if (is_overridden(t, st) || (f->st.st_uid == st->st_uid && f->st.st_gid == st->st_gid))
		return 0;
	return fchownat(f->fd, "", st->st_uid, st->st_gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* After the owner, as chown clears set-id bits, and after all attributes: without privileges those
 * of a file that its owner may not write cannot be set. */
static int copy_mode(struct union_fs *t, const struct fresh *f, const struct stat *st)
{
	const bool is_chowned = f->st.st_uid != st->st_uid || f->st.st_gid != st->st_gid;
	const mode_t mode = st->st_mode & 07777;

	if (is_overridden(t, st)) {
		const bool has_acl = xattr_get(f->fd, "", "system.posix_acl_access", NULL, 0) > 0;

		if (fchmod(f->fd,
			   (has_acl ? mode_xattr_acl_mode(mode) : mode_xattr_real_mode(mode)) &
				   07777) < 0)
			return -errno;
		return mode_xattr_store(f->fd, t->upper->override, st);
	}
	/* Otherwise it was made with the right one. */
	if (S_ISLNK(st->st_mode) || (!is_chowned && (f->st.st_mode & 07777) == mode))
		return 0;
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
		return fchmod(f->fd, mode) < 0 ? -errno : 0;
	return fchmodat(t->workfd, f->temp, mode, 0) < 0 ? -errno : 0;
}

/* Set the times of the lower file, or those that the copy is to have. A change of the content that
 * has been made has set the time of the last change, and is no access. */
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

/* False: something could not be removed. The next mount finds it, and it needs its entry in the
 * map. */
static bool drop_fresh(struct union_fs *t, struct fresh *f, bool is_dir)
{
	struct stat st;
	bool is_left;

	if (*f->temp)
		unlinkat(t->workfd, f->temp, is_dir ? AT_REMOVEDIR : 0);
	is_left = f->fd >= 0 && !is_dir && (fstat(f->fd, &st) < 0 || st.st_nlink > 0);
	closep(&f->fd);
	return !is_left;
}

/* ---- regular files ---- */

/* Without set-id bits, which come last: filling it would take them away. And ours to fill: a mode
 * that is not comes last, too. */
static int make_regular(struct union_fs *t, mode_t mode, struct fresh *f)
{
	mode = (mode & 0777) | 0600;
	*f->temp = '\0';
	if (t->can.has_tmpfile && !t->can.wants_name_sync && !t->can.wants_size_sync) {
		f->fd = openat(t->workfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
		if (f->fd >= 0)
			return 0;
	}
	upper_temp_name(t, f->temp);
	f->fd = openat(t->workfd, f->temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode);
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

/* No map will say what is below, so the copy must be on the disk before its name is. Holes stay
 * holes. */
static int copy_for_good(struct union_fs *t, struct source *src, int fd, uint64_t size)
{
	const size_t step = 1u << 20;
	_cleanup_(freep) char *buf = malloc(step);
	off_t data = 0;
	int r;

	if (!buf)
		return -ENOMEM;
	/* A lower file that was cut short behind our back would look like one with a hole at its
	 * end. */
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
	if (data != -ENXIO)
		return (int)data;
	return t->is_volatile || fdatasync(fd) == 0 ? 0 : -errno;
}

static int set_path(struct partial_xattr *m, const struct image_entry *e)
{
	_cleanup_(freep) char *path = image_path(e);

	if (!path)
		return -ENOMEM;
	if (strlen(path) >= sizeof(m->path))
		return -ENAMETOOLONG;
	strcpy(m->path, path);
	return 0;
}

/* Put the guard in place. Where only the guard has no room the file is changed all the same, as on
 * a full disk; `veneer check` tells. */
static int put_guard(struct union_fs *t, int fd)
{
	int r = metacopy_guard_set(fd, metacopy_guard_for(t->style.has_trusted));

	/* An upper on overlayfs itself, before Linux 6.7. */
	if ((r == -EOPNOTSUPP || r == -EPERM) && t->style.has_trusted)
		r = metacopy_guard_set(fd, METACOPY_GUARD_USER);
	if (r != -ENOSPC && r != -EDQUOT && r != -E2BIG && r != -EOPNOTSUPP && r != -EPERM)
		return r;
	if (!atomic_exchange(&t->has_said_unguarded, true))
		log_warn("%s: no room for the attribute by which overlayfs refuses a partial file "
			 "(%s): later veneer check "
			 "--repair sets it",
			 t->upper->path, strerror(-r));
	return 0;
}

/* Writes the mark, and before it its seal if it has a path: at its own place what it leads to is
 * read by the same users. A path twice may be more than a file system has room for, 4 KiB for all
 * attributes on ext4: a mark that is followed without a seal (`is_covered`) then goes without. */
static int write_mark(struct union_fs *t, int fd, const struct partial_xattr *m, bool is_covered)
{
	_cleanup_(buf_release) struct buf value = { 0 };
	const bool has_seal = *m->path && t->style.has_trusted;
	int r = partial_xattr_encode(m, &value);

	if (r < 0)
		return r;
	r = has_seal ? xattr_trust_seal(fd, &value) : 0;
	r = r ?: mode_relax_set_xattr(fd, FORMAT_PARTIAL_ATTR, value.data, value.len);
	if (r == 0 || !has_seal)
		return r;
	xattr_trust_remove_seal(fd);
	if (!is_covered || (r != -ENOSPC && r != -E2BIG && r != -ERANGE))
		return r;
	return mode_relax_set_xattr(fd, FORMAT_PARTIAL_ATTR, value.data, value.len);
}

/* btrfs may log of a new file that it is there, and no more, when its directory or one above is
 * synced, also by another program: after a power cut it has its attributes, and the size that it
 * was last logged with, or 0. So it is logged before it has its place, under a name in the work
 * directory (doc/decisions/0008). */
static int sync_size(struct union_fs *t, int fd)
{
	return t->can.wants_size_sync && !t->is_volatile && fsync(fd) < 0 ? -errno : 0;
}

/* A shell: full size, no data, a mark that says what lies under its holes. The map entry comes
 * before the mark, the mark before the guard and the name. */
static int make_partial(struct union_fs *t, struct inode *i, const struct fresh *f,
			const struct stat *st)
{
	struct partial_xattr m = { .lower_size = (uint64_t)st->st_size,
				   .lower_mtime_s = st->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)st->st_mtim.tv_nsec };
	const bool has_acl = !i->src.below->is_unresolved;
	file_id_t id;
	int r;

	if (f->has_path || (t->style.has_trusted && !xattr_trust_covers(st, has_acl, true, st))) {
		r = set_path(&m, i->lower);
		if (r < 0)
			return r;
	}
	if (ftruncate(f->fd, st->st_size) < 0)
		return -errno;
	r = mapfile_file_new(t->map, m.lower_size, &id);
	if (r < 0)
		return r;
	m.file_id = id;
	m.uuid_low = (uint32_t)mapfile_uuid(t->map);
	r = write_mark(t, f->fd, &m, xattr_trust_covers(st, has_acl, false, st));
	r = r ?: put_guard(t, f->fd);
	if (r < 0) {
		mapfile_file_gone(t->map, id);
		return r;
	}
	i->src.map = t->map;
	i->src.id = id;
	return 0;
}

/* A small file has all of its content at once, the first write in it: a program that reads the raw
 * upper sees it as it is. To us it is a partial file all of whose blocks are own, so that a power
 * cut before its data is on the disk leaves the old content and not an empty file. */
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

/* Nothing of the lower file can be seen; the mark is there for its inode number. */
static int make_emptied(struct union_fs *t, struct inode *i, struct source *src,
			const struct fresh *f, const struct stat *st)
{
	int r;

	i->src.below = src;
	r = make_partial(t, i, f, st);
	if (r == 0 && ftruncate(f->fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = mapfile_truncate(t->map, i->src.id, 0);
	return r;
}

static int fill_data(struct union_fs *t, struct inode *i, const struct stat *st, struct source *src,
		     struct copyup_change *change, struct fresh *f)
{
	int r;

	if (change && change->is_emptied) {
		change->is_done = true;
		return t->copies_whole ? 0 : make_emptied(t, i, src, f, st);
	}
	if (t->copies_whole)
		return copy_for_good(t, src, f->fd, (uint64_t)st->st_size);
	i->src.below = src;
	f->whole_bytes = (uint64_t)st->st_size;
	r = make_partial(t, i, f, st);
	/* Before there is data, which the sync would have to wait for. */
	if (r == 0 && st->st_size > 0)
		r = f->is_nameless ? 0 : sync_size(t, f->fd);
	if (r == 0 && change && !change->keeps_content && st->st_size > 0 &&
	    st->st_size <= (off_t)COPYUP_WHOLE_MAX)
		r = copy_small(t, i, f->fd, (size_t)st->st_size, change);
	return r;
}

/* A copy that is not partial shows the number of what it was copied from by this alone. */
static void note_origin(struct union_fs *t, struct inode *i, int fd)
{
	_cleanup_(freep) char *path = image_path(i->lower);

	if (path)
		origin_xattr_write(&t->style, fd, path);
}

static int fill_regular(struct union_fs *t, struct inode *i, const struct stat *st,
			struct copyup_change *change, struct fresh *f)
{
	struct source *src;
	int fd, r = image_source(t->image, i->lower, &src);

	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	fd = source_pin(src);
	if (fd < 0)
		return fd;
	r = fill_data(t, i, st, src, change, f);
	/* After the data: writing and truncating take set-id bits and capabilities away. */
	if (r == 0)
		r = copy_owner(t, f, st);
	if (r == 0 && !i->src.id)
		note_origin(t, i, f->fd);
	if (r == 0 && !src->is_unresolved)
		r = copy_xattrs(fd, f->fd, change && change->is_done);
	fd_cache_unpin(&src->fd);
	if (r == 0)
		r = copy_mode(t, f, st);
	if (r == 0)
		r = copy_times(f->fd, st, change);
	return r;
}

/* ---- everything else ---- */

static int make_directory(struct union_fs *t, const struct stat *st, struct fresh *f)
{
	upper_temp_name(t, f->temp);
	if (mkdirat(t->workfd, f->temp, (st->st_mode & 07777) | 0700) < 0) {
		*f->temp = '\0';
		return -errno;
	}
	f->fd = openat(t->workfd, f->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return f->fd < 0 ? -errno : 0;
}

static int make_symlink(struct union_fs *t, int from, struct fresh *f)
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

static int make_special(struct union_fs *t, const struct stat *st, struct fresh *f)
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
		      struct copyup_change *change, struct fresh *f)
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

/* ---- into place ---- */

/* The place of the copy: one name, all names of a hard-linked file, or none (neither). */
struct target {
	struct inode *parent;
	const char *name;
	const struct hardlink_set *names;
};

static int make_copy(struct union_fs *t, struct inode *i, const struct target *to,
		     struct copyup_change *change, struct fresh *f)
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
	/* Under several names the file's own path says too little, and a server that dies must be
	 * able to tell. */
	f->has_path = to->names || (change && change->moves);
	f->is_nameless = !to->parent && !to->names;
	return fstat(f->fd, &f->st) < 0 ? -errno : fill_regular(t, i, &st, change, f);
}

static int show_copy(struct union_fs *t, struct inode *i, const struct target *to, struct fresh *f)
{
	if (to->names) {
		int r = publish_all(t, i, f->fd, f->temp, to->names);

		/* Ours, of a copy that failed and could not be taken back: the next mount gives it
		 * its other names. */
		return r == -EEXIST ? -EIO : r;
	}
	if (to->parent)
		return publish_one(t, i, f->fd, f->temp, to->parent, to->name);
	if (*f->temp && unlinkat(t->workfd, f->temp, i->type == DT_DIR ? AT_REMOVEDIR : 0) < 0)
		return -errno;
	return 0;
}

/* Under i->lock. */
static int copy_claimed(struct union_fs *t, struct inode *i, struct copyup_change *change,
			const struct target *to)
{
	const bool is_nameless = !to->parent && !to->names;
	struct fresh f = { .fd = -1 };
	int r = is_nameless ? upper_take_share(t) : 0;

	if (r < 0)
		return r;
	r = make_copy(t, i, to, change, &f);
	if (r == 0 && i->type == DT_DIR) {
		i->has_default_acl = xattr_get(f.fd, "", "system.posix_acl_default", NULL, 0) > 0;
		r = upper_listing_empty(i);
	}
	/* The other names may be looked up as soon as they exist. */
	if (r == 0 && to->names)
		inode_expect_upper(t, i, f.st.st_ino);
	if (r == 0)
		r = show_copy(t, i, to, &f);
	if (r < 0) {
		if (to->names)
			inode_expect_upper(t, i, 0);
		if (drop_fresh(t, &f, i->type == DT_DIR) && i->src.id)
			mapfile_file_gone(t->map, i->src.id);
		i->src.id = 0;
		i->src.below = NULL;
		if (change)
			change->is_done = false;
		if (is_nameless)
			fd_cache_unhold(&t->held);
		return r;
	}
	quota_note(t->quota, f.fd);
	if (!is_nameless) {
		upper_install(t, i, steal_fd(&f.fd));
	} else {
		upper_hold_fresh(t, i, steal_fd(&f.fd)); /* there is no way back to it */
		i->is_gone = true;
	}
	inode_set_upper(t, i, f.st.st_ino);
	if (change)
		change->is_marked = f.has_path && i->src.id;
	stats_add(STATS_COPYUPS, 1);
	stats_add(STATS_WHOLE_BYTES, f.whole_bytes);
	return 0;
}

/* Directories are let through: what is in them could not be removed otherwise, and there are only
 * so many below. *ret_n: inodes. */
static int claim_room(struct union_fs *t, struct inode *i, const struct copyup_change *change,
		      uint64_t *ret, uint64_t *ret_n)
{
	struct stat st;
	int r;

	*ret = *ret_n = 0;
	if (!t->quota || i->type == DT_DIR || (change && change->is_let_through))
		return 0;
	*ret_n = 1;
	r = image_stat(t->image, i->lower, &st);
	if (r == 0 && i->type == DT_REG && !(change && change->is_emptied) &&
	    (t->copies_whole ||
	     (st.st_size <= (off_t)COPYUP_WHOLE_MAX && !(change && change->keeps_content))))
		*ret = ((uint64_t)st.st_size + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
	return r < 0 ? r : quota_claim(t->quota, *ret, *ret_n);
}

static void note_touched(struct union_fs *t, struct inode *i, const struct target *to)
{
	if (!t->on_touched)
		return;
	t->on_touched(t, i);
	if (to->parent)
		t->on_touched(t, to->parent);
	for (size_t k = 0; to->names && k < to->names->n; k++)
		t->on_touched(t, to->names->v[k].dir);
}

/* Under i->lock. */
static int copy_locked(struct union_fs *t, struct inode *i, struct copyup_change *change,
		       const struct target *to)
{
	uint64_t room, n;
	int r = claim_room(t, i, change, &room, &n);

	if (r < 0)
		return r;
	r = copy_claimed(t, i, change, to);
	if (r == 0)
		note_touched(t, i, to);
	quota_settle(t->quota, -1, room, n);
	return r;
}

/* Copy up one file whose directory has an upper entry, or that has no directory. -EAGAIN: that is
 * no longer so. */
static int copyup_one(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	char name[NAME_MAX + 1];
	struct target to = { .name = name };
	int r = 0;

	/* Under the lock: what unlinks or renames a lower entry holds it too, so the name stays. */
	WRLOCK_SCOPE(&i->lock);
	if (i->has_upper)
		return 0;
	if (inode_any_name(t, i, &to.parent, name) < 0)
		to.parent = NULL;
	if (to.parent && !to.parent->has_upper)
		r = -EAGAIN;
	else
		r = copy_locked(t, i, change, &to);
	if (to.parent)
		inode_unref(t, to.parent);
	return r;
}

/* The topmost directory above i that has no upper entry, or i itself; referenced. In a loop, and
 * not by recursion, since an image decides how deep it is. */
static struct inode *topmost_lower(struct union_fs *t, struct inode *i)
{
	char name[NAME_MAX + 1];
	struct inode *parent;

	inode_ref(t, i);
	while (inode_any_name(t, i, &parent, name) == 0) {
		if (parent->has_upper) {
			inode_unref(t, parent);
			break;
		}
		inode_unref(t, i);
		i = parent;
	}
	return i;
}

static int copyup_single(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	for (;;) {
		struct inode *top = topmost_lower(t, i);
		bool is_last = top == i;
		int r = copyup_one(t, top, is_last ? change : NULL);

		inode_unref(t, top);
		if (r != -EAGAIN && (r < 0 || is_last))
			return r;
	}
}

static int copyup_dirs(struct union_fs *t, const struct hardlink_set *names)
{
	int r = 0;

	for (size_t k = 0; k < names->n && r == 0; k++)
		if (!names->v[k].dir->has_upper)
			r = copyup_single(t, names->v[k].dir, NULL);
	return r;
}

/* The directories of all names have an upper entry. -EAGAIN: that is not so for a name that is new
 * since. */
static int copyup_names(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	struct hardlink_set names;
	int r;

	/* No name can go while this is held, and none can come: what makes or removes one copies up
	 * first. */
	WRLOCK_SCOPE(&i->lock);
	if (i->has_upper)
		return 0;
	r = hardlink_index_find(t, i->lower, &names);
	/* A copy without a name is for a file without one. */
	if (r == 0 && names.n == 0 && !i->is_orphan)
		r = -EAGAIN;
	for (size_t k = 0; k < names.n && r == 0; k++)
		if (!names.v[k].dir->has_upper)
			r = -EAGAIN;
	if (r == 0)
		r = copy_locked(t, i, change, &(struct target){ .names = names.n ? &names : NULL });
	hardlink_index_set_release(t, &names);
	return r;
}

/* All names of a hard-linked lower file get their entry together: it stays one file, for readers of
 * the upper. */
static int copyup_linked(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	for (;;) {
		struct hardlink_set names;
		int r = hardlink_index_find(t, i->lower, &names);
		bool has_none = names.n == 0;

		if (r == 0)
			r = copyup_dirs(t, &names);
		hardlink_index_set_release(t, &names);
		if (r == 0)
			r = has_none ? copyup_single(t, i, change) : copyup_names(t, i, change);
		if (r != -EAGAIN)
			return r;
	}
}

int copyup_inode(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	if (i->has_upper)
		return 0;
	if (!t->upper)
		return -EROFS;
	return i->is_in_by_lower ? copyup_linked(t, i, change) : copyup_single(t, i, change);
}

int copyup_settle_links(struct union_fs *t, struct inode *i)
{
	struct hardlink_set names;
	bool has_others;
	int r;

	if (!i->is_in_by_lower || i->has_upper)
		return 0;
	r = hardlink_index_find(t, i->lower, &names);
	has_others = names.n > 1;
	hardlink_index_set_release(t, &names);
	if (r < 0 || !has_others)
		return r;
	r = copyup_inode(t, i, NULL);
	/* Where the quota has no room for a copy, take one without content: an inode, of which
	 * there are only so many below. But not for gigabytes. */
	if (r == -ENOSPC && t->quota && !t->copies_whole)
		r = copyup_inode(
			t, i,
			&(struct copyup_change){ .keeps_content = true, .is_let_through = true });
	return r;
}

/* Of what this mount knows: the owner of the file may have written another since. */
static int write_origin(struct union_fs *t, struct inode *i, int fd, bool is_covered,
			const struct stat *low)
{
	struct partial_xattr m = { .file_id = i->src.id,
				   .uuid_low = (uint32_t)mapfile_uuid(t->map),
				   .lower_size = (uint64_t)low->st_size,
				   .lower_mtime_s = low->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)low->st_mtim.tv_nsec };
	int r = set_path(&m, i->lower);

	return r ?: write_mark(t, fd, &m, is_covered);
}

static int fix_origin(struct union_fs *t, struct inode *i, int fd, const struct stat *attributes,
		      bool has_acl)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	struct partial_xattr m;
	struct stat up, low;
	bool is_lasting;
	int r = source_read_mark(fd, "", &m, NULL);

	if (r == -EACCES && (x = mode_relax_begin(fd, "")))
		r = source_read_mark(fd, "", &m, NULL);
	if (r != 1)
		return r;
	r = fstat(fd, &up) < 0 ? -errno : image_stat(t->image, i->lower, &low);
	if (r < 0)
		return r;
	is_lasting = *m.path && (m.is_sealed || !t->style.has_trusted);
	if (is_lasting || (attributes && xattr_trust_covers(attributes, has_acl, !*m.path, &low)))
		return 0;
	return write_origin(t, i, fd, xattr_trust_covers(attributes ?: &up, has_acl, false, &low),
			    &low);
}

int copyup_fix_origin(struct union_fs *t, struct inode *i, const struct stat *attributes)
{
	int fd, r;

	if (i->type != DT_REG || !i->has_upper || !i->lower)
		return 0;
	/* A mark that was just taken away must not come back. */
	WRLOCK_SCOPE(&i->lock);
	if (!i->src.id)
		return 0;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	r = fix_origin(t, i, fd, attributes,
		       xattr_get(fd, "", "system.posix_acl_access", NULL, 0) > 0);
	fd_cache_unpin(&i->src.fd);
	return r < 0 ? r : 0;
}
