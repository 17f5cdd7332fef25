// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/apply.h"

#include "entry_attrs.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/source.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct looking {
	const struct diff *d;
	int dirfd;
	const struct timespec *since;
	bool is_newer; /* set by a walk */
};

/* In the same second a time without nanoseconds counts as newer, because its file system may count
 * whole seconds. */
static bool is_newer(const struct looking *l, const struct stat *st)
{
	const struct timespec *a = &st->st_ctim, *b = l->since;

	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec
				      : a->tv_nsec >= b->tv_nsec || !a->tv_nsec;
}

static int look_at(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct looking *l = arg;

	(void)dirfd;
	(void)name;
	l->is_newer |= is_newer(l, st);
	return S_ISDIR(st->st_mode);
}

/* An unreadable directory counts as changed. */
static int miss(void *arg, const char *name, int error)
{
	struct looking *l = arg;

	(void)name;
	(void)error;
	l->is_newer = true;
	return 0;
}

/* Open the path in the directory with O_PATH, and fill in its stat. -ENOENT: there is nothing, or
 * it is behind a link by now. */
static int open_there(const struct looking *l, const char *path, struct stat *ret)
{
	_cleanup_(closep) int fd = path_open(l->dirfd, path, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0)
		return fd == -ENOTDIR || fd == -ELOOP ? -ENOENT : fd;
	return fstat(fd, ret) < 0 ? -errno : steal_fd(&fd);
}

/* 1: the object at the path was changed, or, if it is a directory that will be removed, anything in
 * it. */
static int is_changed(struct looking *l, const char *path, bool must_exist)
{
	static const struct dir_walk_hooks hooks = { .entry = look_at, .miss = miss };
	struct stat st;
	_cleanup_(closep) int fd = open_there(l, path, &st);
	int r;

	if (fd < 0)
		return fd == -ENOENT ? must_exist : fd;
	l->is_newer = is_newer(l, &st);
	r = S_ISDIR(st.st_mode) && !l->is_newer ? dir_walk(fd, &hooks, l) : 0;
	return r < 0 ? r : l->is_newer;
}

/* Was the file below a partial one changed? */
static int check_below(struct looking *l, const struct diff_entry *e, const char *path)
{
	_cleanup_(freep) char *own = NULL;

	if (*path)
		return is_changed(l, path, true);
	if (e->image_entry->nlayers < 2)
		return 1;
	own = image_path_in_layer(e->image_entry, e->image_entry->layers[1]);
	return own ? is_changed(l, own, true) : -ENOMEM;
}

/* For a copy, even a moved one: was its origin changed? */
static int check_base(struct looking *l, const struct diff_entry *e)
{
	_cleanup_(closep) int fd = -1;
	struct partial_xattr mark;
	char origin[PATH_MAX];
	int r;

	/* Skip files of snapshots: the path of their base is of that time, and may be gone. */
	if (e->type != DT_REG || e->image_entry->layer != 0 || l->d->n_upper > 1)
		return 0;
	fd = image_open_path(l->d->full, e->image_entry);
	r = fd < 0 ? fd : source_read_mark(fd, "", &mark, NULL);
	if (r == 1)
		return check_below(l, e, mark.path);
	r = r ?: origin_xattr_read(fd, "", false, origin);
	return r == 1 ? is_changed(l, origin, true) : r;
}

/* A directory that remains may have got other names meanwhile. Its owner, mode and attributes must
 * match the clone's. */
static int check_dir(struct looking *l, const struct diff_entry *e)
{
	struct stat st, wanted;
	_cleanup_(closep) int fd = open_there(l, e->path, &st), own = -1;
	int r;

	if (fd < 0)
		return fd == -ENOENT ? 1 : fd;
	if (!is_newer(l, &st) || !S_ISDIR(st.st_mode))
		return is_newer(l, &st);
	own = image_open_path(l->d->full, e->image_entry);
	r = own < 0 ? own : image_stat(l->d->full, e->image_entry, &wanted);
	r = r < 0 ? r : entry_attrs_same(own, &wanted, fd, &st);
	return r < 0 ? r : !r;
}

/* Was the directory on the way to a path renamed, or its mode changed? After a mere change of its
 * contents, the modification time would be as new as the change time. */
static int is_exchanged(const struct looking *l, const char *dir)
{
	struct stat st;
	_cleanup_(closep) int fd = open_there(l, dir, &st);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (!is_newer(l, &st))
		return 0;
	st.st_ctim = st.st_mtim;
	return !is_newer(l, &st);
}

/* Call fn for each exchanged directory above the path, except those above the previous path. */
static ssize_t check_ancestors(const struct looking *l, const char *path, const char *before,
			       void (*fn)(void *arg, const char *path), void *arg)
{
	_cleanup_(freep) char *dir = strdup(path);
	ssize_t n = 0;

	if (!dir)
		return -ENOMEM;
	for (char *slash = strchr(dir, '/'); slash; *slash = '/', slash = strchr(slash + 1, '/')) {
		const size_t len = (size_t)(slash - dir);
		int r;

		*slash = '\0';
		if (!strncmp(dir, before, len) && before[len] == '/')
			continue;
		r = is_exchanged(l, dir);
		if (r < 0)
			return r;
		if (r)
			fn(arg, dir);
		n += r;
	}
	return n;
}

static int is_conflict(struct looking *l, const struct diff_entry *e)
{
	int r;

	if (e->kind == 'C' && e->type == DT_DIR)
		return check_dir(l, e);
	r = is_changed(l, e->path, e->kind == 'C');
	return r ?: e->kind == 'A' ? check_base(l, e) : 0;
}

ssize_t apply_find_conflicts(const struct diff *d, int dirfd, const struct timespec *since,
			     void (*fn)(void *arg, const char *path), void *arg)
{
	struct looking l = { .d = d, .dirfd = dirfd, .since = since };
	ssize_t n = 0;

	for (size_t k = 0; k < d->n; k++) {
		const char *path = d->entries[k].path;
		ssize_t above = check_ancestors(&l, path, k ? d->entries[k - 1].path : "", fn, arg);
		int r = above < 0 ? (int)above : is_conflict(&l, &d->entries[k]);

		if (r < 0)
			return r;
		if (r)
			fn(arg, path);
		n += above + r;
	}
	return n;
}

int apply_is_root_changed(const struct diff *d, int dirfd)
{
	_cleanup_(closep) int fd = image_open_path(d->full, image_root(d->full));
	struct stat st, there;
	int r = fd < 0 ? fd : fstat(dirfd, &there) < 0 ? -errno : 0;

	r = r ?: image_stat(d->full, image_root(d->full), &st);
	if (r < 0)
		return r;
	r = st.st_mode == there.st_mode ? entry_attrs_same_xattrs(fd, dirfd) : 0;
	return r < 0 ? r : !r;
}

static int by_path(const void *key, const void *entry)
{
	return strcmp(key, ((const struct diff_entry *)entry)->path);
}

/* May this user change names in the directory? Its owner may if the directory itself is changed,
 * too. 1: no. */
static int is_closed(const struct diff *d, int rootfd, const char *dir)
{
	_cleanup_(closep) int fd = path_open(rootfd, dir, O_PATH | O_DIRECTORY, 0);
	char self[sizeof("/proc/self/fd/-2147483648")];
	struct stat st;

	/* The directory will be created. */
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? 0 : fd;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (faccessat(AT_FDCWD, self, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	if (!bsearch(dir, d->entries, d->n, sizeof(*d->entries), by_path))
		return 1;
	return fstat(fd, &st) < 0 ? -errno : st.st_uid != geteuid();
}

ssize_t apply_find_obstacles(const struct diff *d, int dirfd,
			     void (*fn)(void *arg, const char *path), void *arg)
{
	_cleanup_(freep) char *last = NULL;
	ssize_t n = 0;

	for (size_t k = 0; k < d->n; k++) {
		char *dir = strdup(d->entries[k].path), *slash = dir ? strrchr(dir, '/') : NULL;
		int r = dir ? 0 : -ENOMEM;

		if (dir)
			*(slash ? slash : dir) = '\0';
		if (r == 0 && (!last || strcmp(dir, last) != 0))
			r = is_closed(d, dirfd, dir);
		free(last);
		last = dir;
		if (r < 0)
			return r;
		if (r)
			fn(arg, *dir ? dir : ".");
		n += r;
	}
	return n;
}
