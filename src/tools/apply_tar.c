// SPDX-License-Identifier: Apache-2.0
/* What is no directory is made under a name beside its own, which no layer shows, and renamed. One
 * that a kill leaves there is in the way of the same entry next time, and goes. */
#include "veneer/tools/apply.h"

#include "archive_library.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/path.h"
#include "veneer/sys/rmtree.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define STEP_BYTES ((size_t)1 << 20)
#define ACL_PREFIX "system.posix_acl_"
#define NEW_NAME   ".wh..wh.apply"

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_filetype) CALL(archive_entry_hardlink) \
	CALL(archive_entry_pathname) CALL(archive_entry_set_pathname) \
	CALL(archive_entry_xattr_next) CALL(archive_entry_xattr_reset) CALL(archive_errno) \
	CALL(archive_error_string) CALL(archive_read_data_block) CALL(archive_read_free) \
	CALL(archive_read_new) CALL(archive_read_next_header) CALL(archive_read_open_fd) \
	CALL(archive_read_support_format_tar) CALL(archive_write_close) \
	CALL(archive_write_data_block) CALL(archive_write_disk_new) \
	CALL(archive_write_disk_set_options) CALL(archive_write_finish_entry) \
	CALL(archive_write_free) CALL(archive_write_header)
/* clang-format on */

static struct {
	bool is_there;
	CALLS(ARCHIVE_LIBRARY_DECLARE)
} lib;

static int load(void)
{
	void *handle = lib.is_there ? NULL : archive_library_open();

	if (handle)
		lib.is_there = true CALLS(ARCHIVE_LIBRARY_FIND);
	return lib.is_there ? 0 : archive_library_lacks();
}

/* An access list, which the library leaves out. */
struct acl {
	char *path, *name, *value;
	size_t size;
};

struct extracting {
	struct archive *from, *to;
	int dirfd;
	struct acl *acls;
	size_t n, cap;
};

static int check(struct archive *a, int r)
{
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return 0;
	r = lib.archive_errno(a);
	log_error("%s", lib.archive_error_string(a) ?: "cannot read the archive");
	return r > 0 ? -r : -EIO;
}

/* ---- what goes ---- */

/* Splits "dir/name" in place; the directory, open. */
static int open_parent(const struct extracting *x, char *path, const char **ret_name)
{
	char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	return path_open(x->dirfd, slash ? path : "", O_RDONLY | O_DIRECTORY, 0);
}

static int remove_at(int dirfd, const char *name)
{
	struct stat st;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	rmtree(dirfd, name);
	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? -ENOTEMPTY : 0;
}

static int remove_child(void *arg, int dirfd, const char *name, const struct stat *st)
{
	(void)arg;
	(void)st;
	return remove_at(dirfd, name);
}

static int miss(void *arg, const char *name, int error)
{
	(void)arg;
	(void)name;
	return error;
}

static int empty(int dirfd)
{
	static const struct dir_walk_hooks hooks = { .entry = remove_child,
						     .miss = miss,
						     .is_ours = true };

	return dir_walk(dirfd, &hooks, NULL);
}

/* path: of the marker; is taken apart. */
static int carry_out_marker(const struct extracting *x, char *path)
{
	const char *name;
	_cleanup_(closep) int dirfd = open_parent(x, path, &name);

	if (dirfd < 0)
		return dirfd;
	if (!strcmp(name, WHITEOUT_OPAQUE_NAME))
		return empty(dirfd);
	return remove_at(dirfd, name + strlen(WHITEOUT_PREFIX));
}

/* ---- what comes ---- */

static int note_acls(struct extracting *x, struct archive_entry *e, const char *path)
{
	const char *name;
	const void *value;
	size_t size;

	lib.archive_entry_xattr_reset(e);
	while (lib.archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
		struct acl *a;

		if (strncmp(name, ACL_PREFIX, strlen(ACL_PREFIX)) != 0)
			continue;
		if (array_reserve(&x->acls, &x->cap, x->n + 1) < 0)
			return -ENOMEM;
		a = &x->acls[x->n++];
		*a = (struct acl){ strdup(path), strdup(name), malloc(size ?: 1), size };
		if (!a->path || !a->name || !a->value)
			return -ENOMEM;
		memcpy(a->value, value, size);
	}
	return 0;
}

static int set_acl(const struct extracting *x, const struct acl *a)
{
	_cleanup_(closep) int fd = path_open(x->dirfd, a->path, O_PATH | O_NOFOLLOW, 0);
	char path[sizeof("/proc/self/fd/-2147483648")];

	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return setxattr(path, a->name, a->value, a->size, 0) < 0 ? -errno : 0;
}

static int copy_data(struct extracting *x)
{
	const void *block;
	la_int64_t off;
	size_t n;
	int r;

	while ((r = lib.archive_read_data_block(x->from, &block, &n, &off)) == ARCHIVE_OK) {
		r = check(x->to, (int)lib.archive_write_data_block(x->to, block, n, off));
		if (r < 0)
			return r;
	}
	return r == ARCHIVE_EOF ? 0 : check(x->from, r);
}

static int extract_as(struct extracting *x, struct archive_entry *e, const char *path)
{
	int r;

	lib.archive_entry_set_pathname(e, path);
	r = check(x->to, lib.archive_write_header(x->to, e));
	r = r ?: copy_data(x);
	return r ?: check(x->to, lib.archive_write_finish_entry(x->to));
}

/* Another name of a file that came before. */
static int link_new(const struct extracting *x, int dirfd, const char *from)
{
	_cleanup_(freep) char *copy = strdup(from);
	const char *name;
	_cleanup_(closep) int from_fd = -1;

	if (!copy || !path_is_plain(from, strlen(from)))
		return copy ? -EINVAL : -ENOMEM;
	from_fd = open_parent(x, copy, &name);
	if (from_fd < 0)
		return from_fd;
	return linkat(from_fd, name, dirfd, NEW_NAME, 0) < 0 ? -errno : 0;
}

/* dir: the path of dirfd. */
static int make_new(struct extracting *x, struct archive_entry *e, int dirfd, const char *dir)
{
	const char *from = lib.archive_entry_hardlink(e);
	_cleanup_(freep) char *path = NULL;

	if (from)
		return link_new(x, dirfd, from);
	if (asprintf(&path, "%s%s" NEW_NAME, dir, *dir ? "/" : "") < 0)
		return -ENOMEM;
	return extract_as(x, e, path);
}

static int replace(int dirfd, const char *name)
{
	if (renameat(dirfd, NEW_NAME, dirfd, name) < 0)
		return -errno;
	/* Two names of one file are left as they are. */
	return unlinkat(dirfd, NEW_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* What is no directory. */
static int extract_file(struct extracting *x, struct archive_entry *e, const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);
	const char *name;
	_cleanup_(closep) int dirfd = copy ? open_parent(x, copy, &name) : -ENOMEM;
	struct stat st;
	int r;

	if (dirfd < 0)
		return dirfd;
	r = remove_at(dirfd, NEW_NAME);
	r = r ?: make_new(x, e, dirfd, name == copy ? "" : copy);
	if (r == 0 && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		r = remove_at(dirfd, name);
	return r ?: replace(dirfd, name);
}

static int extract_dir(struct extracting *x, struct archive_entry *e, const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);
	const char *name;
	_cleanup_(closep) int dirfd = copy ? open_parent(x, copy, &name) : -ENOMEM;
	struct stat st;
	int r = 0;

	if (dirfd < 0)
		return dirfd;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
		r = remove_at(dirfd, name);
	return r ?: extract_as(x, e, path);
}

static int extract_object(struct extracting *x, struct archive_entry *e, const char *path)
{
	int r = note_acls(x, e, path);

	if (r < 0)
		return r;
	return lib.archive_entry_filetype(e) == AE_IFDIR && !lib.archive_entry_hardlink(e)
		       ? extract_dir(x, e, path)
		       : extract_file(x, e, path);
}

static int extract_entry(struct extracting *x, struct archive_entry *e)
{
	_cleanup_(freep) char *path = strdup(lib.archive_entry_pathname(e) ?: "");
	size_t n = path ? strlen(path) : 0;
	const char *slash, *name;
	int r;

	if (n && path[n - 1] == '/')
		path[--n] = '\0';
	if (!path || !path_is_plain(path, n))
		return -EINVAL;
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	r = strncmp(name, WHITEOUT_PREFIX, strlen(WHITEOUT_PREFIX)) == 0
		    ? carry_out_marker(x, path)
		    : extract_object(x, e, path);
	if (r < 0)
		log_error("%s: %s", lib.archive_entry_pathname(e), strerror(-r));
	return r;
}

static int extract_all(struct extracting *x)
{
	struct archive_entry *e;
	int r = 0, got = ARCHIVE_OK;

	while (r == 0 && (got = lib.archive_read_next_header(x->from, &e)) == ARCHIVE_OK)
		r = extract_entry(x, e);
	if (r == 0 && got != ARCHIVE_EOF)
		r = check(x->from, got == ARCHIVE_WARN ? ARCHIVE_FATAL : got);
	/* Modes and times of directories. */
	if (r == 0)
		r = check(x->to, lib.archive_write_close(x->to));
	for (size_t k = 0; r == 0 && k < x->n; k++)
		r = set_acl(x, &x->acls[k]);
	return r;
}

static int open_archives(struct extracting *x, int tar_fd)
{
	const int flags = ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_XATTR |
			  ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
			  (geteuid() == 0 ? ARCHIVE_EXTRACT_OWNER : 0);
	int r;

	x->from = lib.archive_read_new();
	x->to = lib.archive_write_disk_new();
	if (!x->from || !x->to)
		return -ENOMEM;
	r = check(x->to, lib.archive_write_disk_set_options(x->to, flags));
	r = r ?: check(x->from, lib.archive_read_support_format_tar(x->from));
	return r ?: check(x->from, lib.archive_read_open_fd(x->from, tar_fd, STEP_BYTES));
}

int apply_extract(int tar_fd, int dirfd)
{
	struct extracting x = { .dirfd = dirfd };
	int r = load();

	if (r < 0)
		return r;
	r = fchdir(dirfd) < 0 ? -errno : open_archives(&x, tar_fd);
	r = r ?: extract_all(&x);
	if (x.from)
		lib.archive_read_free(x.from);
	if (x.to)
		lib.archive_write_free(x.to);
	for (size_t k = 0; k < x.n; k++) {
		free(x.acls[k].path);
		free(x.acls[k].name);
		free(x.acls[k].value);
	}
	free(x.acls);
	return r;
}
