// SPDX-License-Identifier: Apache-2.0
/* An object that is not a directory is created under a reserved name beside its own, gets its
 * contents and attributes, and is renamed. Layers never show the reserved name. A crash may leave
 * it behind; the same entry then removes it at the next run. Directories get modes and times last,
 * when they are complete.
 *
 * Other programs may write in the directory, too. So everything is done on descriptors opened
 * beneath it without following a link. Hence libarchive only reads the archive, and does not write
 * files. */
#include "veneer/tools/apply.h"

#include "archive_library.h"
#include "entry_attrs.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"
#include "veneer/sys/rmtree.h"
#include "veneer/sys/xattr.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STEP_BYTES ((size_t)1 << 20)
#define HOLE_BYTES 4096u /* aligned runs of so many zeros become holes */
#define NEW_NAME   ".wh..wh.apply"

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_clone) CALL(archive_entry_filetype) CALL(archive_entry_free) \
	CALL(archive_entry_gid) CALL(archive_entry_hardlink) CALL(archive_entry_mode) \
	CALL(archive_entry_mtime) CALL(archive_entry_mtime_nsec) CALL(archive_entry_pathname) \
	CALL(archive_entry_rdev) CALL(archive_entry_size) CALL(archive_entry_symlink) \
	CALL(archive_entry_uid) CALL(archive_entry_xattr_next) CALL(archive_entry_xattr_reset) \
	CALL(archive_errno) CALL(archive_error_string) CALL(archive_read_data_block) \
	CALL(archive_read_free) CALL(archive_read_new) CALL(archive_read_next_header) \
	CALL(archive_read_open_fd) CALL(archive_read_support_format_tar)
/* clang-format on */

ARCHIVE_LIBRARY_LOADER(CALLS)

struct touched {
	dev_t dev;
	ino_t ino;
};

struct extracting {
	struct archive *from;
	int dirfd;
	dev_t dev; /* of dirfd; file systems mounted in it are synced separately */
	struct timespec since; /* time of the archive */
	void (*left)(void *arg, const char *path);
	void *arg;
	struct archive_entry **dirs; /* owned; their attributes are set last */
	size_t n, cap;
	struct touched *touched; /* owned: files with a new change time because one of their names
				    was removed here */
	size_t n_touched, cap_touched;
};

/* The parent directory and the name of an entry. */
struct place {
	int dirfd; /* -1: not open */
	char *path; /* of the entry */
	const char *name; /* last component of path */
};

static void place_release(struct place *p)
{
	closep(&p->dirfd);
	free(p->path);
}

static int place_open(const struct extracting *x, const char *path, struct place *ret)
{
	_cleanup_(freep) char *dir = strdup(path);
	char *slash;

	ret->path = strdup(path);
	if (!dir || !ret->path)
		return -ENOMEM;
	slash = strrchr(dir, '/');
	ret->name = ret->path + (slash ? slash + 1 - dir : 0);
	*(slash ? slash : dir) = '\0';
	ret->dirfd = path_open(x->dirfd, dir, O_PATH | O_DIRECTORY, 0);
	return ret->dirfd < 0 ? ret->dirfd : 0;
}

static int check(struct archive *a, int r)
{
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return 0;
	r = lib.archive_errno(a);
	log_error("cannot read the archive: %s", lib.archive_error_string(a) ?: "it is damaged");
	return r > 0 ? -r : -EIO;
}

/* ---- removal ---- */

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Was the object changed or created after the archive was made? */
static bool is_changed_since(const struct extracting *x, const struct stat *st)
{
	if (is_before(&st->st_ctim, &x->since))
		return false;
	for (size_t k = 0; k < x->n_touched; k++)
		if (x->touched[k].dev == st->st_dev && x->touched[k].ino == st->st_ino)
			return false;
	return true;
}

/* Remember a file with further names: removing one name changes its change time. */
static int note_touched(struct extracting *x, const struct stat *st)
{
	if (S_ISDIR(st->st_mode) || st->st_nlink < 2 || is_changed_since(x, st))
		return 0;
	if (array_reserve(&x->touched, &x->cap_touched, x->n_touched + 1) < 0)
		return -ENOMEM;
	x->touched[x->n_touched++] = (struct touched){ st->st_dev, st->st_ino };
	return 0;
}

struct search {
	const struct extracting *x;
	bool is_found;
};

static int look_at(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct search *s = arg;

	(void)dirfd;
	(void)name;
	/* The time of a directory is new as soon as one of its entries was removed. */
	s->is_found |= !S_ISDIR(st->st_mode) && is_changed_since(s->x, st);
	return S_ISDIR(st->st_mode);
}

static int miss(void *arg, const char *name, int error)
{
	(void)arg;
	(void)name;
	return error;
}

/* Was anything in the directory changed? 1, 0 or -errno. */
static int has_changed_inside(const struct extracting *x, int dirfd, const char *name)
{
	static const struct dir_walk_hooks hooks = { .entry = look_at,
						     .miss = miss,
						     .is_ours = true };
	_cleanup_(closep) int fd =
		openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct search s = { .x = x };
	int r = fd < 0 ? -errno : dir_walk(fd, &hooks, &s);

	return r < 0 ? r : s.is_found;
}

/* 1: it stays, because it was changed meanwhile. */
static int remove_at(struct extracting *x, int dirfd, const char *name)
{
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	r = S_ISDIR(st.st_mode) ? has_changed_inside(x, dirfd, name) : is_changed_since(x, &st);
	if (r)
		return r;
	r = note_touched(x, &st);
	if (r < 0)
		return r;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
	rmtree(dirfd, name);
	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? -ENOTEMPTY : 0;
}

/* A newer object may come from this run or an earlier one, so it is not reported. */
static int remove_child(void *arg, int dirfd, const char *name, const struct stat *st)
{
	int r = remove_at(arg, dirfd, name);

	(void)st;
	return r < 0 ? r : 0;
}

static int empty(struct extracting *x, int dirfd)
{
	static const struct dir_walk_hooks hooks = { .entry = remove_child,
						     .miss = miss,
						     .is_ours = true };

	return dir_walk(dirfd, &hooks, x);
}

/* ---- attributes ---- */

/* An attribute that the file system lacks, or this user may not set, is skipped with a warning. */
static int settle(int r, const char *path, const char *what)
{
	if (r != -EPERM && r != -EOPNOTSUPP && r != -EINVAL)
		return r;
	log_warn("%s: %s: %s", path, what, strerror(-r));
	return 0;
}

static bool has_attr(struct archive_entry *e, const char *wanted)
{
	const char *name;
	const void *value;
	size_t size;

	lib.archive_entry_xattr_reset(e);
	while (lib.archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK)
		if (!strcmp(name, wanted))
			return true;
	return false;
}

/* Remove attributes of the previous object, and an access ACL inherited from the directory. */
static int remove_xattrs(struct archive_entry *e, int fd)
{
	_cleanup_(freep) char *names = NULL;
	ssize_t len = xattr_list_alloc(fd, "", &names);
	int r = 0;

	for (const char *name = names; r == 0 && len > 0 && name < names + len;
	     name += strlen(name) + 1)
		if (entry_attrs_counts(name) && !has_attr(e, name))
			r = xattr_remove(fd, "", name);
	return len == -EOPNOTSUPP || r == -ENODATA ? 0 : len < 0 ? (int)len : r;
}

static int set_xattrs(struct archive_entry *e, int fd, const char *path)
{
	int r = settle(remove_xattrs(e, fd), path, "an attribute stays");
	const char *name;
	const void *value;
	size_t size;

	lib.archive_entry_xattr_reset(e);
	while (r == 0 && lib.archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK)
		r = settle(xattr_set(fd, "", name, value, size, 0), path, name);
	return r;
}

static int set_owner(struct archive_entry *e, int fd, const char *path)
{
	const uid_t uid = (uid_t)lib.archive_entry_uid(e);
	const gid_t gid = (gid_t)lib.archive_entry_gid(e);
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && (st.st_uid != uid || st.st_gid != gid) &&
	    fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
		r = settle(-errno, path, "its owner");
	return r;
}

/* fd may be O_PATH. Set the owner first: changing it clears capabilities and set-uid bits. */
static int set_attributes(struct archive_entry *e, int fd, const char *path)
{
	const struct timespec times[] = { { .tv_nsec = UTIME_OMIT },
					  { lib.archive_entry_mtime(e),
					    lib.archive_entry_mtime_nsec(e) } };
	char self[sizeof("/proc/self/fd/-2147483648")];
	int r = set_owner(e, fd, path);

	r = r ?: set_xattrs(e, fd, path);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (r == 0 && lib.archive_entry_filetype(e) != AE_IFLNK &&
	    chmod(self, lib.archive_entry_mode(e) & 07777) < 0)
		r = settle(-errno, path, "its mode");
	if (r == 0 && utimensat(fd, "", times, AT_EMPTY_PATH) < 0)
		r = settle(-errno, path, "its time");
	return r;
}

/* ---- objects other than directories ---- */

static bool is_zero(const char *p, size_t n)
{
	return !*p && !memcmp(p, p + 1, n - 1);
}

static int write_block(int fd, const char *p, size_t n, uint64_t off)
{
	int r = 0;

	while (r == 0 && n) {
		size_t piece = MIN(n, HOLE_BYTES - off % HOLE_BYTES);

		r = is_zero(p, piece) ? 0 : file_pwrite(fd, p, piece, (off_t)off);
		p += piece;
		off += piece;
		n -= piece;
	}
	return r;
}

static int write_data(struct extracting *x, struct archive_entry *e, int fd)
{
	const la_int64_t size = lib.archive_entry_size(e);
	la_int64_t off = 0, end = 0;
	const void *block;
	size_t n;
	int got, r = ftruncate(fd, size) < 0 ? -errno : 0;

	while (r == 0 &&
	       (got = lib.archive_read_data_block(x->from, &block, &n, &off)) != ARCHIVE_EOF) {
		if (got != ARCHIVE_OK)
			return check(x->from, ARCHIVE_FATAL);
		end = off + (la_int64_t)n;
		r = n ? write_block(fd, block, n, (uint64_t)off) : 0;
	}
	return r == 0 && end != size ? -EIO : r;
}

/* Returns a descriptor of the new file. */
static int make_file(struct extracting *x, struct archive_entry *e, int dirfd)
{
	_cleanup_(closep) int fd =
		openat(dirfd, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : write_data(x, e, fd);

	return r < 0 ? r : steal_fd(&fd);
}

static int make_other(struct archive_entry *e, int dirfd)
{
	const mode_t type = lib.archive_entry_filetype(e);
	int r = type == AE_IFLNK ? symlinkat(lib.archive_entry_symlink(e) ?: "", dirfd, NEW_NAME)
				 : mknodat(dirfd, NEW_NAME, type | 0600, lib.archive_entry_rdev(e));

	r = r < 0 ? -errno : openat(dirfd, NEW_NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return r == -1 ? -errno : r;
}

/* Make a further name of an earlier file. */
static int make_link(const struct extracting *x, const char *from, int dirfd)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	int r = path_is_plain(from, strlen(from)) ? place_open(x, from, &p) : -EINVAL;

	if (r < 0)
		return r;
	return linkat(p.dirfd, p.name, dirfd, NEW_NAME, 0) < 0 ? -errno : 0;
}

static int make_new(struct extracting *x, struct archive_entry *e, const struct place *p)
{
	const char *from = lib.archive_entry_hardlink(e);
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r;

	if (from)
		return make_link(x, from, p->dirfd);
	fd = lib.archive_entry_filetype(e) == AE_IFREG ? make_file(x, e, p->dirfd)
						       : make_other(e, p->dirfd);
	r = fd < 0 ? fd : set_attributes(e, fd, p->path);
	if (r == 0 && lib.archive_entry_filetype(e) == AE_IFREG &&
	    (fstat(fd, &st) < 0 || (st.st_dev != x->dev && fsync(fd) < 0)))
		r = -errno;
	return r;
}

static int replace(const struct place *p)
{
	if (renameat(p->dirfd, NEW_NAME, p->dirfd, p->name) < 0)
		return -errno;
	/* rename does nothing if both names are links to one file. */
	return unlinkat(p->dirfd, NEW_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int extract_file(struct extracting *x, struct archive_entry *e, const struct place *p)
{
	struct stat st;
	int r = unlinkat(p->dirfd, NEW_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;

	r = r ?: make_new(x, e, p);
	if (r == 0 && fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = S_ISDIR(st.st_mode) ? remove_at(x, p->dirfd, p->name) : note_touched(x, &st);
	if (r == 0)
		return replace(p);
	unlinkat(p->dirfd, NEW_NAME, 0);
	return r;
}

/* ---- directories ---- */

/* Let the owner create names until the directory gets its final mode. */
static int let_in(int fd)
{
	char self[sizeof("/proc/self/fd/-2147483648")];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & 0700) == 0700 || st.st_uid != geteuid())
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return chmod(self, (st.st_mode & 07777) | 0700) < 0 ? -errno : 0;
}

static int extract_dir(struct extracting *x, struct archive_entry *e, const struct place *p)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r = array_reserve(&x->dirs, &x->cap, x->n + 1);

	if (r == 0 && fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISDIR(st.st_mode))
		r = remove_at(x, p->dirfd, p->name);
	if (r)
		return r;
	if (mkdirat(p->dirfd, p->name, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r < 0)
		return r;
	x->dirs[x->n] = lib.archive_entry_clone(e);
	if (!x->dirs[x->n])
		return -ENOMEM;
	x->n++;
	fd = openat(p->dirfd, p->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : let_in(fd);
}

/* The path without the trailing slash of a directory. */
static char *plain_path(struct archive_entry *e)
{
	char *path = strdup(lib.archive_entry_pathname(e) ?: "");
	size_t n = path ? strlen(path) : 0;

	if (n && path[n - 1] == '/')
		path[n - 1] = '\0';
	return path;
}

static int end_dir(const struct extracting *x, struct archive_entry *e)
{
	_cleanup_(freep) char *path = plain_path(e);
	_cleanup_(closep) int fd =
		path ? path_open(x->dirfd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0) : -ENOMEM;

	return fd < 0 ? fd : set_attributes(e, fd, path);
}

/* ---- the archive ---- */

/* An object from this run or an earlier one has the modification time of the archive. */
static bool is_written_since(const struct extracting *x, struct archive_entry *e,
			     const struct place *p)
{
	struct stat st;

	return fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
	       is_changed_since(x, &st) &&
	       (st.st_mtim.tv_sec != lib.archive_entry_mtime(e) ||
		st.st_mtim.tv_nsec != lib.archive_entry_mtime_nsec(e));
}

/* p: of the marker. 1: something stays. */
static int extract_marker(struct extracting *x, const struct place *p)
{
	_cleanup_(freep) char *path = NULL;
	const int len = (int)(p->name - p->path);
	int r;

	if (!strcmp(p->name, WHITEOUT_OPAQUE_NAME))
		return empty(x, p->dirfd);
	r = remove_at(x, p->dirfd, p->name + WHITEOUT_PREFIX_LEN);
	if (r != 1)
		return r;
	if (asprintf(&path, "%.*s%s", len, p->path, p->name + WHITEOUT_PREFIX_LEN) < 0)
		return -ENOMEM;
	x->left(x->arg, path);
	return 0;
}

static int extract_entry(struct extracting *x, struct archive_entry *e)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	_cleanup_(freep) char *path = plain_path(e);
	int r = !path				    ? -ENOMEM
		: path_is_plain(path, strlen(path)) ? place_open(x, path, &p)
						    : -EINVAL;

	/* The directory was removed or replaced meanwhile. */
	if (r == -ENOENT || r == -ENOTDIR)
		r = 1;
	if (r == 0 && !strncmp(p.name, WHITEOUT_PREFIX, WHITEOUT_PREFIX_LEN))
		r = extract_marker(x, &p);
	else if (r == 0 && lib.archive_entry_filetype(e) == AE_IFDIR)
		r = extract_dir(x, e, &p);
	else if (r == 0)
		r = is_written_since(x, e, &p) ? 1 : extract_file(x, e, &p);
	if (r == 1)
		x->left(x->arg, path);
	if (r < 0)
		log_error("%s: %s", path ? path : "?", strerror(-r));
	return r < 0 ? r : 0;
}

static int extract_all(struct extracting *x)
{
	struct archive_entry *e;
	int r = 0, got = ARCHIVE_OK;

	while (r == 0 && (got = lib.archive_read_next_header(x->from, &e)) != ARCHIVE_EOF)
		r = check(x->from, got) ?: extract_entry(x, e);
	for (size_t k = x->n; r == 0 && k > 0; k--)
		r = end_dir(x, x->dirs[k - 1]);
	return r;
}

static int open_archive(struct extracting *x, int tar_fd)
{
	struct stat dir, tar;

	if (fstat(x->dirfd, &dir) < 0 || fstat(tar_fd, &tar) < 0)
		return -errno;
	x->dev = dir.st_dev;
	x->since = tar.st_mtim;
	x->from = lib.archive_read_new();
	if (!x->from)
		return -ENOMEM;
	return check(x->from, lib.archive_read_support_format_tar(x->from))
		       ?: check(x->from, lib.archive_read_open_fd(x->from, tar_fd, STEP_BYTES));
}

int apply_extract(int tar_fd, int dirfd, void (*left)(void *arg, const char *path), void *arg)
{
	struct extracting x = { .dirfd = dirfd, .left = left, .arg = arg };
	int r = load();

	if (r < 0)
		return r;
	r = open_archive(&x, tar_fd);
	r = r ?: extract_all(&x);
	if (x.from)
		lib.archive_read_free(x.from);
	for (size_t k = 0; k < x.n; k++)
		lib.archive_entry_free(x.dirs[k]);
	free(x.dirs);
	free(x.touched);
	return r;
}
