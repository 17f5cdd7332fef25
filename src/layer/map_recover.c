// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/map_recover.h"

#include "veneer/base/array.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/layer.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/source.h"
#include "veneer/map/format.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/probe.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct map_recover_run {
	blk_t blk, n;
};

struct map_recover_file {
	file_id_t id;
	uint64_t size;
	size_t order; /* of names with one id the first found counts */
	size_t run, nruns;
};

/* The walk goes on without this one. An error that says that we cannot go on ends it: on a better
 * day the same tree may be read whole. */
static int skip(struct map_recover *r, const char *name, int error)
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

struct own_call {
	int (*own)(void *own_arg, blk_t blk, blk_t n);
	void *own_arg;
};

/* An unwritten extent holds nothing that was written: whether the block is an own hole only a
 * synced map can tell. A block that is allocated in part was never written whole. */
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

/* [from, end) is in one run of data, as the file system reports it. */
static int data_contents(int fd, uint8_t *buf, uint64_t from, uint64_t end,
			 const struct own_call *call)
{
	blk_t first = 0, nown = 0;
	int e = 0;

	for (uint64_t off = from & ~(uint64_t)(BLK_BYTES - 1); e == 0 && off < end;
	     off += CHUNK_BYTES) {
		ssize_t n = file_pread(fd, buf, CHUNK_BYTES, (off_t)off);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		for (ssize_t at = 0; e == 0 && at < n && off + (uint64_t)at < end;
		     at += BLK_BYTES) {
			const blk_t blk = (off + (uint64_t)at) >> BLK_SHIFT;
			const size_t len = n - at < (ssize_t)BLK_BYTES ? (size_t)(n - at)
								       : BLK_BYTES;

			if (buf_is_zero(buf + at, len))
				continue;
			if (nown && first + nown != blk) {
				e = call->own(call->own_arg, first, nown);
				nown = 0;
			}
			first = nown ? first : blk;
			nown++;
		}
	}
	return e == 0 && nown ? call->own(call->own_arg, first, nown) : e;
}

int map_recover_contents(int fd, int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg,
			 uint64_t *ret_size)
{
	const struct own_call call = { own, own_arg };
	_cleanup_(freep) uint8_t *buf = malloc(CHUNK_BYTES);
	off_t data = 0, hole = 0;
	struct stat st;
	int e = 0;

	if (!buf)
		return -ENOMEM;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	*ret_size = (uint64_t)st.st_size;
	while (e == 0 && hole < st.st_size && (data = lseek(fd, hole, SEEK_DATA)) >= 0) {
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 && errno != ENXIO)
			return -errno;
		/* The file is being cut. */
		if (hole <= data)
			break;
		e = data_contents(fd, buf, (uint64_t)data, (uint64_t)hole, &call);
	}
	return e < 0 || data >= 0 || errno == ENXIO ? e : -errno;
}

static int remember_run(void *arg, blk_t blk, blk_t n)
{
	struct map_recover *r = arg;
	int e = array_grow(&r->runs, r->nruns);

	if (e == 0)
		r->runs[r->nruns++] = (struct map_recover_run){ blk, n };
	return e;
}

/* A regular file: remember its extents if it is marked. */
static int visit_file(struct map_recover *r, int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	_cleanup_(closep) int fd = -1;
	size_t run = r->nruns;
	uint64_t size = 0;
	struct partial_xattr mark;
	int e = source_read_mark(dirfd, name, &mark, NULL);

	if (e == -EACCES && r->is_ours && (x = mode_relax_begin(dirfd, name)))
		e = source_read_mark(dirfd, name, &mark, NULL);
	if (e <= 0)
		return e;
	fd = openat(dirfd, name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, name, flags);
	if (fd < 0)
		return -errno;
	/* The name may be another file's by now. */
	e = source_read_mark(fd, "", &mark, NULL);
	if (e <= 0)
		return e;
	e = r->by_content ? map_recover_contents(fd, remember_run, r, &size)
			  : fd_extents(fd, remember_run, r);
	if (e == 0)
		e = array_grow(&r->files, r->nfiles);
	if (e < 0) {
		r->nruns = run;
		return e;
	}
	r->files[r->nfiles] =
		(struct map_recover_file){ mark.file_id, size, r->nfiles, run, r->nruns - run };
	r->nfiles++;
	return 0;
}

static int visit_name(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct map_recover *r = arg;
	int e;

	/* Files of snapshots have numbers of their own maps. */
	if (!strcmp(name, BRANCH_DIR_NAME))
		return 0;
	e = S_ISREG(st->st_mode) ? visit_file(r, dirfd, name) : S_ISDIR(st->st_mode);
	return e < 0 ? skip(r, name, e) : e;
}

static int miss(void *arg, const char *name, int error)
{
	return skip(arg,
		    error == -ESTALE && !strcmp(name, "..") ? "a directory that was moved" : name,
		    error);
}

static int scan(struct map_recover *r)
{
	const struct dir_walk_hooks hooks = { .entry = visit_name,
					      .miss = miss,
					      .is_ours = r->is_ours };

	return dir_walk(r->rootfd, &hooks, r);
}

static int by_id(const void *a, const void *b)
{
	const struct map_recover_file *f = a, *g = b;

	if (f->id != g->id)
		return f->id < g->id ? -1 : 1;
	return f->order < g->order ? -1 : f->order > g->order;
}

static const struct map_recover_file *find_file(const struct map_recover *r, file_id_t id)
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

static int scan_once(struct map_recover *r, bool by_content)
{
	int e;

	if (r->is_scanned)
		return r->by_content == by_content ? 0 : -EOPNOTSUPP;
	log_info("%s was not unmounted before %s: rebuilding its map", r->name,
		 by_content ? "it was copied" : "the machine went down");
	r->by_content = by_content;
	e = scan(r);
	if (e < 0)
		return e;
	if (r->nfiles)
		qsort(r->files, r->nfiles, sizeof(*r->files), by_id);
	r->is_scanned = true;
	return 0;
}

static int runs_of(struct map_recover *r, file_id_t id, const struct own_call *call,
		   uint64_t *ret_size)
{
	const struct map_recover_file *f = find_file(r, id);
	int e = 0;

	if (!f)
		return r->is_partial ? -EOPNOTSUPP : -ENOENT;
	*ret_size = f->size;
	for (size_t i = 0; i < f->nruns && e == 0; i++)
		e = call->own(call->own_arg, r->runs[f->run + i].blk, r->runs[f->run + i].n);
	return e;
}

static int extents_of(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
		      void *own_arg)
{
	const struct own_call call = { own, own_arg };
	struct map_recover *r = arg;
	uint64_t size;

	if (!r->has_true_extents)
		return -EOPNOTSUPP;
	return scan_once(r, false) ?: runs_of(r, id, &call, &size);
}

static int contents_of(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
		       void *own_arg, uint64_t *ret_size)
{
	const struct own_call call = { own, own_arg };

	return scan_once(arg, true) ?: runs_of(arg, id, &call, ret_size);
}

void map_recover_init(struct map_recover *r, int rootfd, const char *name, bool has_true_extents)
{
	*r = (struct map_recover){
		.hook = { .extents = extents_of, .contents = contents_of, .arg = r },
		.rootfd = rootfd,
		.name = name,
		.has_true_extents = has_true_extents,
	};
}

void map_recover_release(struct map_recover *r)
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

static int extents_of_lost(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			   void *own_arg)
{
	const struct lost_file *lost = arg;

	(void)id;
	return lost->has_true_extents ? fd_extents(lost->fd, own, own_arg) : -EOPNOTSUPP;
}

static int contents_of_lost(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			    void *own_arg, uint64_t *ret_size)
{
	const struct lost_file *lost = arg;

	(void)id;
	return map_recover_contents(lost->fd, own, own_arg, ret_size);
}

int map_recover_enter(struct layer *l, struct mapfile *map, const struct partial_xattr *m, int fd)
{
	struct lost_file lost = { fd, fd >= 0 && probe_true_extents(l->rootfd) };
	struct mapfile_rebuild hook = { extents_of_lost, &lost, contents_of_lost };
	int r;

	if ((uint32_t)mapfile_uuid(map) != m->uuid_low)
		return -ENOENT;
	if (fd < 0)
		return fd;
	r = mapfile_file_enter_again(map, m->file_id, m->lower_size, &hook);
	return r == -EEXIST ? 0 : r;
}

/* The blocks come in ascending order. */
static int count_on(void *arg, blk_t blk, blk_t n)
{
	blk_t *end = arg;

	if (blk == *end)
		*end += n;
	return 0;
}

int map_recover_is_whole(int fd, uint64_t lower_size)
{
	blk_t end = 0;
	uint64_t size;
	int r = map_recover_contents(fd, count_on, &end, &size);

	if (r < 0)
		return r;
	size = MIN(size, lower_size);
	return end >= (size + BLK_BYTES - 1) >> BLK_SHIFT;
}
