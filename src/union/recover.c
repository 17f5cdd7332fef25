// SPDX-License-Identifier: Apache-2.0
/* The tree of a layer is as deep and as wide as whoever made it liked. The walk keeps a level of
 * its own on the heap for each directory it is in, open descriptors for the last few of them only,
 * and goes up by "..", which is believed if it leads to the directory it came from. No path is
 * ever put together. */
#include "veneer/recover.h"

#include "veneer/cleanup.h"
#include "veneer/file.h"
#include "veneer/format.h"
#include "veneer/layer.h"
#include "veneer/log.h"
#include "veneer/mark.h"
#include "veneer/path.h"
#include "veneer/probe.h"
#include "veneer/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_LEVELS 16u

struct recover_run {
	blk_t blk, n;
};

struct recover_file {
	file_id_t id;
	size_t order; /* of names with one id the first found counts */
	size_t run, nruns;
};

/* A directory that the walk is in, and the names of those in it that are still to be entered. */
struct level {
	int fd; /* -1: given up while the walk is far below */
	dev_t dev;
	ino_t ino;
	char *names; /* one after the other, each with its NUL */
	size_t len, cap, at;
};

struct walk {
	struct recover *r;
	struct level *levels;
	size_t depth, cap;
};

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* Room for one more element behind n of them; capacities are powers of two, so that n tells. */
static int grow(void *array, size_t n, size_t size)
{
	void **p = array;
	void *bigger;

	if (n & (n - 1))
		return 0;
	bigger = reallocarray(*p, n ? n * 2 : 1, size);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	return 0;
}

/* The walk goes on without this one. What says that it is us who cannot go on ends it: on a better
 * day the same tree may be read whole. */
static int skip(struct recover *r, const char *name, int error)
{
	if (error == -ENOMEM || error == -EMFILE || error == -ENFILE)
		return error;
	if (!r->is_partial)
		log_warn("%s: %s and maybe more cannot be read (%s): partial files that are not "
			 "found stay as last committed",
			 r->name, name, strerror(-error));
	r->is_partial = true;
	return 0;
}

static int open_quiet(int dirfd, const char *name, int flags)
{
	int fd;

	flags |= O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	fd = openat(dirfd, name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

struct own_call {
	int (*own)(void *own_arg, blk_t blk, blk_t n);
	void *own_arg;
};

/* An unwritten extent holds nothing that was written: whether the block is an own hole only a
 * synced map can tell. What is allocated but in part was never written whole. */
static int own_extent(void *arg, uint64_t off, uint64_t len, bool is_unwritten)
{
	struct own_call *call = arg;
	blk_t first = (off + BLK_BYTES - 1) >> BLK_SHIFT;
	blk_t end = (off + len) >> BLK_SHIFT;

	return !is_unwritten && end > first ? call->own(call->own_arg, first, end - first) : 0;
}

static int fd_extents(int fd, int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg)
{
	struct own_call call = { own, own_arg };
	struct stat st;
	uint64_t nblk;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	/* The last block is a whole one, however little of it the file uses. */
	nblk = ((uint64_t)st.st_size + BLK_BYTES - 1) >> BLK_SHIFT;
	return file_extents(fd, nblk << BLK_SHIFT, own_extent, &call);
}

static int remember_run(void *arg, blk_t blk, blk_t n)
{
	struct recover *r = arg;
	int e = grow(&r->runs, r->nruns, sizeof(*r->runs));

	if (e == 0)
		r->runs[r->nruns++] = (struct recover_run){ blk, n };
	return e;
}

/* A regular file: remember its extents if it is marked. */
static int visit_file(struct recover *r, int dirfd, const char *name)
{
	_cleanup_(closep) int fd = -1;
	size_t run = r->nruns;
	struct mark mark;
	int e = source_read_mark(dirfd, name, &mark, NULL);

	if (e <= 0)
		return e;
	fd = open_quiet(dirfd, name, 0);
	if (fd < 0)
		return fd;
	/* The name may be another file's by now. */
	e = source_read_mark(fd, "", &mark, NULL);
	if (e <= 0)
		return e;
	e = fd_extents(fd, remember_run, r);
	if (e == 0)
		e = grow(&r->files, r->nfiles, sizeof(*r->files));
	if (e < 0) {
		r->nruns = run;
		return e;
	}
	r->files[r->nfiles] = (struct recover_file){ mark.file_id, r->nfiles, run, r->nruns - run };
	r->nfiles++;
	return 0;
}

static int remember_subdir(struct level *l, const char *name)
{
	size_t size = strlen(name) + 1;

	if (l->cap - l->len < size) {
		size_t cap = l->cap * 2 + NAME_MAX + 1;
		char *names = realloc(l->names, cap);

		if (!names)
			return -ENOMEM;
		l->names = names;
		l->cap = cap;
	}
	memcpy(l->names + l->len, name, size);
	l->len += size;
	return 0;
}

static int visit_name(struct walk *w, struct level *l, const char *name)
{
	struct stat st;
	int e = 0;

	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		e = -errno;
	else if (S_ISDIR(st.st_mode))
		return remember_subdir(l, name);
	else if (S_ISREG(st.st_mode))
		e = visit_file(w->r, l->fd, name);
	return e < 0 ? skip(w->r, name, e) : 0;
}

/* All names of the level's directory. */
static int read_level(struct walk *w, struct level *l)
{
	_cleanup_(closedirp) DIR *d = NULL;
	int fd = open_quiet(l->fd, ".", O_DIRECTORY);
	struct dirent *de;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (errno = 0, (de = readdir(d))) {
		int e;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		e = visit_name(w, l, de->d_name);
		if (e < 0)
			return e;
	}
	return -errno;
}

static void level_release(struct level *l)
{
	closep(&l->fd);
	free(l->names);
}

static void walk_releasep(struct walk **w)
{
	while ((*w)->depth)
		level_release(&(*w)->levels[--(*w)->depth]);
	free((*w)->levels);
}

/* Go down into the directory fd, which is taken over; its files are read at once. */
static int walk_enter(struct walk *w, int fd, const char *name)
{
	struct stat st;
	int e = grow(&w->levels, w->depth, sizeof(*w->levels));

	if (e == 0 && fstat(fd, &st) < 0)
		e = -errno;
	if (e < 0) {
		close(fd);
		return skip(w->r, name, e);
	}
	w->levels[w->depth] = (struct level){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
	w->depth++;
	if (w->depth > OPEN_LEVELS && w->depth - OPEN_LEVELS > 1)
		closep(&w->levels[w->depth - OPEN_LEVELS - 1].fd);
	e = read_level(w, &w->levels[w->depth - 1]);
	return e < 0 ? skip(w->r, name, e) : 0;
}

/* The directory above has been given up: it is what ".." leads to, unless the tree was changed
 * meanwhile. */
static int reopen_above(struct level *above, const struct level *below)
{
	struct stat st;
	int fd = open_quiet(below->fd, "..", O_DIRECTORY);

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_dev != above->dev || st.st_ino != above->ino) {
		close(fd);
		return -ENOENT;
	}
	above->fd = fd;
	return 0;
}

static int walk_leave(struct walk *w)
{
	struct level *l = &w->levels[w->depth - 1];
	struct level *above = w->depth > 1 ? l - 1 : NULL;
	int e = above && above->fd < 0 ? reopen_above(above, l) : 0;

	/* What is above without a descriptor can only be left, too, and from the next one up
	 * nothing leads. */
	while (e < 0 && w->depth > 2 && w->levels[w->depth - 2].fd < 0)
		level_release(&w->levels[--w->depth]);
	level_release(&w->levels[--w->depth]);
	return e < 0 ? skip(w->r, "a directory that was moved", e) : 0;
}

static int scan(struct recover *r)
{
	struct walk w = { .r = r };
	_cleanup_(walk_releasep) __attribute__((unused)) struct walk *undo = &w;
	int fd = path_open(r->rootfd, "", O_RDONLY | O_DIRECTORY, 0);
	int e = fd < 0 ? fd : walk_enter(&w, fd, ".");

	while (e == 0 && w.depth) {
		struct level *l = &w.levels[w.depth - 1];
		const char *name;

		if (l->at == l->len) {
			e = walk_leave(&w);
			continue;
		}
		name = l->names + l->at;
		l->at += strlen(name) + 1;
		fd = open_quiet(l->fd, name, O_DIRECTORY);
		e = fd < 0 ? skip(r, name, fd) : walk_enter(&w, fd, name);
	}
	return e;
}

static int by_id(const void *a, const void *b)
{
	const struct recover_file *f = a, *g = b;

	if (f->id != g->id)
		return f->id < g->id ? -1 : 1;
	return f->order < g->order ? -1 : f->order > g->order;
}

static const struct recover_file *find_file(const struct recover *r, file_id_t id)
{
	size_t first = 0, end = r->nfiles;

	while (first < end) {
		size_t mid = first + (end - first) / 2;

		if (r->files[mid].id < id)
			first = mid + 1;
		else
			end = mid;
	}
	return first < r->nfiles && r->files[first].id == id ? &r->files[first] : NULL;
}

static int extents_of(void *arg, file_id_t id,
		      int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg)
{
	struct recover *r = arg;
	const struct recover_file *f;
	int e = 0;

	if (!r->has_true_extents)
		return -EOPNOTSUPP;
	if (!r->is_scanned) {
		log_info("%s was not unmounted before the machine went down: rebuilding its map",
			 r->name);
		e = scan(r);
		if (e < 0)
			return e;
		if (r->nfiles)
			qsort(r->files, r->nfiles, sizeof(*r->files), by_id);
		r->is_scanned = true;
	}
	f = find_file(r, id);
	if (!f)
		return r->is_partial ? -EOPNOTSUPP : -ENOENT;
	for (size_t i = 0; i < f->nruns && e == 0; i++)
		e = own(own_arg, r->runs[f->run + i].blk, r->runs[f->run + i].n);
	return e;
}

void recover_init(struct recover *r, int rootfd, const char *name, bool has_true_extents)
{
	*r = (struct recover){
		.hook = { .extents = extents_of, .arg = r },
		.rootfd = rootfd,
		.name = name,
		.has_true_extents = has_true_extents,
	};
}

void recover_release(struct recover *r)
{
	free(r->files);
	free(r->runs);
	r->files = NULL;
	r->runs = NULL;
	r->nfiles = r->nruns = 0;
}

struct lost_file {
	int fd;
	bool has_true_extents;
};

static int extents_of_lost(void *arg, file_id_t id,
			   int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg)
{
	const struct lost_file *lost = arg;

	(void)id;
	return lost->has_true_extents ? fd_extents(lost->fd, own, own_arg) : -EOPNOTSUPP;
}

int recover_adopt(struct layer *l, struct mapfile *map, const struct mark *m, int fd)
{
	struct lost_file lost = { fd, fd >= 0 && probe_true_extents(l->rootfd) };
	struct mapfile_rebuild hook = { extents_of_lost, &lost };
	int r;

	if ((uint32_t)mapfile_uuid(map) != m->uuid_low)
		return -ENOENT;
	if (fd < 0)
		return fd;
	r = mapfile_file_adopt(map, m->file_id, m->lower_size, &hook);
	return r == -EEXIST ? 0 : r;
}
