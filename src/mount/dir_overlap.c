// SPDX-License-Identifier: Apache-2.0
/* The walk up from a directory ends at the root of its mount, because above that may be a mount
 * without a live server. Overlaps hidden by a bind mount are found by paths within the file system,
 * which the mount table has. */
#include "dir_overlap.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 4096

struct id {
	dev_t dev;
	ino_t ino;
};

struct place {
	const char *name; /* borrowed */
	int fd; /* borrowed */
	struct id id, *parents; /* parents: the directories above, nearest first */
	size_t n_parents;
	uint64_t mount; /* 0: unknown */
	unsigned dev_major, dev_minor;
	char *path; /* in its file system; NULL: unknown or not needed */
};

struct places {
	struct place *v; /* lowers, then upper, work and work/work, if they exist */
	size_t n, n_lower;
	struct place *upper, *work, *inner;
	int inner_fd;
};

static bool is_same(const struct id *a, const struct id *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

static void release(struct places *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->v[i].parents);
		free(p->v[i].path);
	}
	free(p->v);
	closep(&p->inner_fd);
}

/* ---- the parents of each ---- */

static int identify(int fd, struct id *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct id){ st.st_dev, st.st_ino };
	return 0;
}

static int push(struct place *p, const struct id *ids, size_t n)
{
	struct id *more = reallocarray(p->parents, p->n_parents + n, sizeof(*more));

	if (!more)
		return -ENOMEM;
	memcpy(more + p->n_parents, ids, n * sizeof(*ids));
	p->parents = more;
	p->n_parents += n;
	return 0;
}

/* Layers are mostly siblings: once the parents meet those of the previous directory, the rest is
 * the same. 1: they meet. */
static int share_parents(struct place *p, const struct place *before, const struct id *id)
{
	for (size_t i = 0; before && i < before->n_parents; i++)
		if (is_same(&before->parents[i], id))
			return push(p, before->parents + i, before->n_parents - i) ?: 1;
	return 0;
}

static int find_parents(struct place *p, const struct place *before)
{
	_cleanup_(closep) int fd = path_open_above(p->fd);
	struct id last = p->id, id;

	while (fd >= 0 && p->n_parents < DEPTH_MAX) {
		int up, r = identify(fd, &id);

		/* The root is its own parent. */
		if (r == 0 && is_same(&id, &last))
			return 0;
		r = r ?: share_parents(p, before && before->mount == p->mount ? before : NULL, &id);
		if (r != 0)
			return r < 0 ? r : 0;
		r = push(p, &id, 1);
		if (r < 0)
			return r;
		last = id;
		up = path_open_above(fd);
		close(fd);
		fd = up;
	}
	return 0;
}

static int examine(struct place *p, const struct place *before)
{
	struct statx st;
	int r = identify(p->fd, &p->id);

	if (r == 0 && statx(p->fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == 0 &&
	    st.stx_mask & STATX_MNT_ID)
		p->mount = st.stx_mnt_id;
	return r ?: find_parents(p, before);
}

static struct place *add(struct places *p, const char *name, int fd)
{
	p->v[p->n] = (struct place){ .name = name, .fd = fd };
	return &p->v[p->n++];
}

static int collect(const struct mount_opts *o, const struct mount_dirs *d, struct places *p)
{
	int r = 0;

	*p = (struct places){ .v = calloc(d->n_lower + 3, sizeof(*p->v)), .inner_fd = -1 };
	if (!p->v)
		return -ENOMEM;
	for (size_t i = 0; i < d->n_lower; i++)
		add(p, o->lower[i], d->lower[i]);
	p->n_lower = p->n;
	if (d->upper >= 0)
		p->upper = add(p, o->upper, d->upper);
	if (d->work >= 0) {
		p->work = add(p, o->work, d->work);
		p->inner_fd =
			openat(d->work, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (p->inner_fd >= 0)
		p->inner = add(p, o->work, p->inner_fd);
	for (size_t i = 0; r == 0 && i < p->n; i++)
		r = examine(&p->v[i], i ? &p->v[i - 1] : NULL);
	return r;
}

/* ---- their paths, where several mounts are involved ---- */

static void find_path(struct place *p, const struct mountinfo_mount *m)
{
	char link[sizeof("/proc/self/fd/-2147483648")], path[PATH_MAX];
	size_t len = strlen(m->point);
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", p->fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return;
	path[strcmp(path, "/") ? n : 0] = '\0';
	if (strncmp(path, m->point, len) != 0 || (path[len] && path[len] != '/') ||
	    asprintf(&p->path, "%s%s", m->root, path + len) < 0) {
		p->path = NULL;
		return;
	}
	p->dev_major = m->dev_major;
	p->dev_minor = m->dev_minor;
}

static size_t distinct_mounts(const struct places *p, struct mountinfo_mount *mounts)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		size_t k = 0;

		while (k < n && mounts[k].id != p->v[i].mount)
			k++;
		if (k == n)
			mounts[n++].id = p->v[i].mount;
	}
	return n;
}

/* A directory with an unknown path counts as apart: the check finds mistakes, not attacks. */
static int find_paths(struct places *p)
{
	struct mountinfo_mount *mounts = calloc(p->n, sizeof(*mounts));
	size_t n;

	if (!mounts)
		return -ENOMEM;
	n = distinct_mounts(p, mounts);
	if (n > 1)
		(void)mountinfo_find(mounts, n);
	for (size_t k = 0; n > 1 && k < n; k++)
		for (size_t i = 0; mounts[k].root && mounts[k].point && i < p->n; i++)
			if (p->v[i].mount == mounts[k].id)
				find_path(&p->v[i], &mounts[k]);
	for (size_t k = 0; k < n; k++) {
		free(mounts[k].root);
		free(mounts[k].point);
	}
	free(mounts);
	return 0;
}

/* ---- relations ---- */

enum relation { APART, SAME, INSIDE };

static enum relation relation_of(const struct place *a, const struct place *b)
{
	size_t len;

	if (is_same(&a->id, &b->id))
		return SAME;
	for (size_t i = 0; i < a->n_parents; i++)
		if (is_same(&a->parents[i], &b->id))
			return INSIDE;
	if (!a->path || !b->path || a->dev_major != b->dev_major || a->dev_minor != b->dev_minor)
		return APART;
	len = strlen(b->path);
	if (strncmp(a->path, b->path, len) != 0)
		return APART;
	return !a->path[len] ? SAME : a->path[len] == '/' ? INSIDE : APART;
}

static int refuse(char *err, size_t err_size, const char *fmt, const char *a, const char *b)
	__attribute__((format(printf, 3, 0)));

static int refuse(char *err, size_t err_size, const char *fmt, const char *a, const char *b)
{
	snprintf(err, err_size, fmt, a, b);
	return -EINVAL;
}

/* Upper and work directory may both be inside a lower. Buildah does this when it mounts :O over a
 * home directory that contains its store. */
static int check_written(const struct places *p, const struct place *low, char *err,
			 size_t err_size)
{
	const enum relation upper = relation_of(p->upper, low),
			    work = p->work ? relation_of(p->work, low) : APART;

	if (upper == SAME)
		return refuse(err, err_size,
			      "upperdir %s is lowerdir %s too, which must not be written: name "
			      "another directory",
			      p->upper->name, low->name);
	if (relation_of(low, p->upper) == INSIDE)
		return refuse(err, err_size,
			      "lowerdir %s is inside upperdir %s and would be written: name "
			      "another upperdir",
			      low->name, p->upper->name);
	if (work == SAME || (work == INSIDE && upper != INSIDE))
		return refuse(err, err_size,
			      work == SAME ? "workdir %s is lowerdir %s too, which must not be "
					     "written: name another directory"
					   : "workdir %s is inside lowerdir %s, which must not be "
					     "written: name another directory",
			      p->work->name, low->name);
	if (p->inner && relation_of(low, p->inner) != APART)
		return refuse(err, err_size,
			      "lowerdir %s is in %s/work, which is emptied: name another workdir",
			      low->name, p->work->name);
	if (upper == INSIDE)
		log_warn("upperdir %s is inside lowerdir %s: changes are visible there too",
			 p->upper->name, low->name);
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const struct id *x = &(*(struct place *const *)a)->id,
			*y = &(*(struct place *const *)b)->id;

	return COMPARE(x->dev, y->dev) ?: COMPARE(x->ino, y->ino);
}

static const struct place *find(struct place *const *sorted, size_t n, const struct id *id)
{
	const struct place key = { .id = *id }, *p = &key;
	struct place *const *found = bsearch(&p, sorted, n, sizeof(*sorted), by_id);

	return found ? *found : NULL;
}

/* A lower inside another lower is only shown twice; read-only mounts of Buildah may have some. */
static int check_lowers(const struct places *p, char *err, size_t err_size)
{
	struct place **sorted = calloc(p->n_lower ? p->n_lower : 1, sizeof(*sorted));
	int r = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < p->n_lower; i++)
		sorted[i] = &p->v[i];
	qsort(sorted, p->n_lower, sizeof(*sorted), by_id);
	for (size_t i = 1; r == 0 && i < p->n_lower; i++)
		if (is_same(&sorted[i]->id, &sorted[i - 1]->id))
			r = refuse(err, err_size,
				   "lowerdir %s is given twice (as %s too): name it once",
				   sorted[i - 1]->name, sorted[i]->name);
	for (size_t i = 0; r == 0 && i < p->n_lower; i++) {
		const struct place *low = &p->v[i], *other = NULL;

		for (size_t k = 0; !other && k < low->n_parents; k++)
			other = find(sorted, p->n_lower, &low->parents[k]);
		if (other)
			log_warn("lowerdir %s is inside lowerdir %s: its files are seen twice",
				 low->name, other->name);
	}
	free(sorted);
	return r;
}

int dir_overlap_check(const struct mount_opts *o, const struct mount_dirs *d, char *err,
		      size_t err_size)
{
	const bool writes = o->upper && !o->is_readonly;
	struct places p;
	int r = collect(o, d, &p);

	r = r ?: find_paths(&p);
	r = r ?: check_lowers(&p, err, err_size);
	if (r == 0 && writes && p.inner && relation_of(p.upper, p.inner) != APART)
		r = refuse(err, err_size,
			   "upperdir %s is in %s/work, which is emptied: name another workdir",
			   o->upper, o->work);
	for (size_t i = 0; r == 0 && writes && i < p.n_lower; i++)
		r = check_written(&p, &p.v[i], err, err_size);
	if (r < 0 && r != -EINVAL)
		snprintf(err, err_size, "cannot tell whether the directories overlap: %s",
			 strerror(-r));
	release(&p);
	return r;
}
