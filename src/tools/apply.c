// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/apply.h"

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
	bool is_newer; /* found by a walk */
};

/* A file system that counts whole seconds is doubted. */
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

/* What cannot be looked at may be anything. */
static int miss(void *arg, const char *name, int error)
{
	struct looking *l = arg;

	(void)name;
	(void)error;
	l->is_newer = true;
	return 0;
}

/* A descriptor with O_PATH of what the directory has at a path, and what it is; -ENOENT: nothing,
 * or it is behind a link by now. */
static int open_there(const struct looking *l, const char *path, struct stat *ret)
{
	_cleanup_(closep) int fd = path_open(l->dirfd, path, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0)
		return fd == -ENOTDIR || fd == -ELOOP ? -ENOENT : fd;
	return fstat(fd, ret) < 0 ? -errno : steal_fd(&fd);
}

/* 1: what stands at the path was changed, or anything in it if it is a directory that goes. */
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

/* Was the file that a partial one shows through to changed? */
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

/* Of a copy, also one that was moved, that which it is a copy of. */
static int check_base(struct looking *l, const struct diff_entry *e)
{
	_cleanup_(closep) int fd = -1;
	struct partial_xattr mark;
	char origin[PATH_MAX];
	int r;

	if (e->type != DT_REG || e->image_entry->layer != 0)
		return 0;
	fd = image_open_path(l->d->full, e->image_entry);
	r = fd < 0 ? fd : source_read_mark(fd, "", &mark, NULL);
	if (r == 1)
		return check_below(l, e, mark.path);
	r = r ?: origin_xattr_read(fd, "", false, origin);
	return r == 1 ? is_changed(l, origin, true) : r;
}

/* A directory that stays one may have got other names. */
static int check_dir(struct looking *l, const char *path)
{
	struct stat st;
	_cleanup_(closep) int fd = open_there(l, path, &st);

	if (fd < 0)
		return fd == -ENOENT ? 1 : fd;
	return S_ISDIR(st.st_mode) ? 0 : is_newer(l, &st);
}

static int is_conflict(struct looking *l, const struct diff_entry *e)
{
	int r;

	if (e->kind == 'C' && e->type == DT_DIR)
		return check_dir(l, e->path);
	r = is_changed(l, e->path, e->kind == 'C');
	return r ?: e->kind == 'A' ? check_base(l, e) : 0;
}

ssize_t apply_find_conflicts(const struct diff *d, int dirfd, const struct timespec *since,
			     void (*fn)(void *arg, const char *path), void *arg)
{
	struct looking l = { .d = d, .dirfd = dirfd, .since = since };
	ssize_t n = 0;

	for (size_t k = 0; k < d->n; k++) {
		int r = is_conflict(&l, &d->entries[k]);

		if (r < 0)
			return r;
		if (r)
			fn(arg, d->entries[k].path);
		n += r;
	}
	return n;
}
