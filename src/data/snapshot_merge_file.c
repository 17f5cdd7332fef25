// SPDX-License-Identifier: Apache-2.0
#include "snapshot_merge_file.h"

#include "partial_mark.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/path_resolve.h"
#include "veneer/layer/snapshot_ino.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)

/* A copied file, by its first name. */
struct copied {
	struct hlink link;
	dev_t dev;
	ino_t ino;
	char *path; /* in the new layer */
};

/* A regular file that is being merged. */
struct merging {
	struct snapshot_merge_files *files;
	const struct snapshot_merge_place *place;
	struct source *top;
	struct source *last; /* the lowest part of the file that is in a merged snapshot */
	bool is_copy; /* a part is a copy of another file, so the file has its own inode number */
	struct stat st;
	int from, fd; /* the file of top; the new file */
	file_id_t id; /* in the new map; 0: a whole file */
	uint64_t clip;
};

int snapshot_merge_files_begin(struct snapshot_merge_files *f, struct snapshot_merge *m)
{
	unsigned flags = MAPFILE_VOLATILE | (probe_is_ordered(m->to) ? MAPFILE_ORDERED : 0);

	*f = (struct snapshot_merge_files){ .merge = m, .buf = malloc(PIECE_BYTES) };
	if (!f->buf)
		return -ENOMEM;
	/* The merge counts only when all of it is on the disk, so the map needs no syncs before. */
	return mapfile_open(m->to, m->work_fd, flags, "a merged snapshot", NULL, &f->map);
}

int snapshot_merge_files_finish(struct snapshot_merge_files *f)
{
	int r = mapfile_count(f->map) ? mapfile_checkpoint(f->map, true) : 0;

	return r ?: mapfile_mark_clean(f->map);
}

static void free_copied(struct hlink *e, void *arg)
{
	struct copied *c = container_of(e, struct copied, link);

	(void)arg;
	free(c->path);
	free(c);
}

void snapshot_merge_files_release(struct snapshot_merge_files *f)
{
	htab_drain(&f->copies, free_copied, NULL);
	htab_release(&f->copies);
	mapfile_close(f->map);
	free(f->buf);
}

static int tell(struct snapshot_merge *m, uint64_t bytes)
{
	m->progress.bytes += bytes;
	return m->step ? m->step(m->arg, &m->progress) : 0;
}

/* ---- attributes ---- */

static bool counts(const char *attr)
{
	return !whiteout_is_reserved_attr(attr) || mode_xattr_is_attr(attr);
}

int snapshot_merge_attributes(int from, const struct stat *st, int to)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int r = fchownat(to, "", st->st_uid, st->st_gid, AT_EMPTY_PATH) < 0 ? -errno : 0;

	r = r ?: xattr_copy(from, to, counts);
	if (r == 0 && !S_ISLNK(st->st_mode))
		r = mode_relax_chmod(to, st->st_mode & 07777);
	return r == 0 && utimensat(to, "", times, AT_EMPTY_PATH) < 0 ? -errno : r;
}

/* ---- bytes ---- */

static size_t layer_of(const struct snapshot_merge_files *f, const struct source *s)
{
	struct layer *const *layers;
	size_t n = image_layers(f->merge->image, &layers), k = 0;

	while (k < n && layers[k] != s->layer)
		k++;
	return k;
}

/* Must the run at blk, of at most *n blocks, be in the new file? Sets *n to its length. 1, 0 or
 * -errno. */
static int is_own(const struct merging *g, blk_t blk, blk_t *n)
{
	for (struct source *s = g->top;; s = s->below) {
		uint64_t clip;
		bool is_owned = false;
		blk_t run = *n, end;
		int r;

		if (!s->is_hollow) {
			r = mapfile_run(s->map, s->id, blk, *n, &is_owned, &run)
				    ?: mapfile_clip(s->map, s->id, &clip);
			if (r < 0)
				return r == -ENOENT ? -EUCLEAN : r;
			*n = run;
			end = (clip + BLK_BYTES - 1) >> BLK_SHIFT;
			if (is_owned || blk >= end)
				return 1;
			*n = MIN(*n, end - blk);
		}
		if (s == g->last)
			return 0;
	}
}

/* Write the buffer's len bytes; blocks of zeros stay holes. */
static int write_blocks(struct merging *g, blk_t first, size_t len)
{
	const char *buf = g->files->buf;
	size_t n;

	for (size_t at = 0; at < len; at += n) {
		const bool is_zero = buf_is_zero(buf + at, MIN(len - at, (size_t)BLK_BYTES));
		const blk_t blk = first + (at >> BLK_SHIFT);
		int r = 0;

		for (n = 0; at + n < len; n += MIN(len - at - n, (size_t)BLK_BYTES))
			if (buf_is_zero(buf + at + n, MIN(len - at - n, (size_t)BLK_BYTES)) !=
			    is_zero)
				break;
		if (!is_zero)
			r = file_pwrite(g->fd, buf + at, n, (off_t)(blk << BLK_SHIFT));
		if (r == 0 && g->id && blk << BLK_SHIFT < g->clip)
			r = (is_zero ? mapfile_own_zeros : mapfile_own)(
				g->files->map, g->id, blk, (n + BLK_BYTES - 1) >> BLK_SHIFT);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_run(struct merging *g, uint64_t off, uint64_t end)
{
	while (off < end) {
		const size_t len = MIN(end - off, (uint64_t)PIECE_BYTES);
		int r = g->id ? mapfile_reserve(g->files->map, PIECE_BYTES >> BLK_SHIFT) : 0;

		r = r ?: read_source(g->top, g->files->buf, len, off);
		r = r ?: write_blocks(g, off >> BLK_SHIFT, len);
		r = r ?: tell(g->files->merge, len);
		if (r < 0)
			return r;
		off += len;
	}
	return 0;
}

static int copy_own(struct merging *g)
{
	const uint64_t size = (uint64_t)g->st.st_size;
	const blk_t end = (size + BLK_BYTES - 1) >> BLK_SHIFT;
	blk_t n;
	int r = 0;

	for (blk_t blk = 0; blk < end && r >= 0; blk += n) {
		n = end - blk;
		r = is_own(g, blk, &n);
		if (r == 1)
			r = copy_run(g, blk << BLK_SHIFT, MIN((blk + n) << BLK_SHIFT, size));
	}
	return r < 0 ? r : 0;
}

static int copy_whole(struct merging *g)
{
	const off_t size = g->st.st_size;
	off_t at = 0;
	int r = 0;

	while (r == 0 && (at = read_source_seek(g->top, at, size, SEEK_DATA)) >= 0) {
		off_t end = read_source_seek(g->top, at, size, SEEK_HOLE);

		/* Copy whole blocks, as write_blocks tests for zeros by block. */
		at &= ~(off_t)(BLK_BYTES - 1);
		r = end <= at ? (end < 0 ? (int)end : -EIO)
			      : copy_run(g, (uint64_t)at, (uint64_t)end);
		at = end;
	}
	return r < 0 ? r : at == -ENXIO ? 0 : (int)at;
}

/* ---- the lower file ---- */

static uint64_t clip_of(const struct merging *g, uint64_t lower_size)
{
	uint64_t least = lower_size, clip;

	for (struct source *s = g->top;; s = s->below) {
		if (!s->is_hollow && mapfile_clip(s->map, s->id, &clip) == 0)
			least = MIN(least, clip);
		if (s == g->last)
			return least;
	}
}

/* source_path_below read the mark again, and the file's owner may have changed it since it was
 * checked. */
static int check_path(const struct merging *g, struct layer *const *layers, size_t n,
		      const char *path)
{
	const struct source *below = g->last->below;
	_cleanup_(freep) char *there = NULL;
	ssize_t idx = path_resolve_file(layers, n, g->files->merge->n, path, &there);

	if (idx < 0)
		return (int)idx;
	return layers[idx] == below->layer && !strcmp(there, below->path) ? 0 : -ESTALE;
}

static int path_below(const struct merging *g, char ret[PATH_MAX])
{
	struct layer *const *layers;
	const size_t n = image_layers(g->files->merge->image, &layers);
	int r = source_path_below(g->last, ret);

	r = r
		    ?: path_resolve_descend(layers, layer_of(g->files, g->last) + 1,
					    g->files->merge->n, ret);
	return r ?: check_path(g, layers, n, ret);
}

/* As partial_mark_make. */
static int write_mark(struct merging *g, const struct stat *low)
{
	const struct whiteout_style *style = g->files->merge->style;
	const bool has_acl = xattr_get(g->from, "", "system.posix_acl_access", NULL, 0) > 0;
	struct partial_xattr m = { .lower_size = (uint64_t)low->st_size,
				   .lower_mtime_s = low->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)low->st_mtim.tv_nsec };
	int r = path_below(g, m.path);

	m.is_copy = g->is_copy;
	/* By another of its names the file may cover another lower file. */
	if (r == 0 && !g->is_copy && g->st.st_nlink == 1 && g->place->below &&
	    !strcmp(m.path, g->place->below) &&
	    (!style->has_trusted || xattr_trust_covers(&g->st, has_acl, true, low)))
		*m.path = '\0';
	g->clip = clip_of(g, m.lower_size);
	r = r ?: mapfile_file_new(g->files->map, g->clip, &g->id);
	if (r < 0)
		return r;
	m.file_id = g->id;
	m.uuid_low = (uint32_t)mapfile_uuid(g->files->map);
	r = partial_mark_write(style, g->fd, &m,
			       *m.path && xattr_trust_covers(&g->st, has_acl, false, low));
	r = r ?: partial_mark_guard(style, g->fd);
	return partial_mark_needs_no_guard(r) && source_read_mark(g->fd, "", &m, NULL) == 1 ? 0 : r;
}

/* A whole file, or a copy of another file, shows its inode number by an attribute alone. */
static int note_number(struct merging *g)
{
	struct snapshot_merge *m = g->files->merge;
	char path[PATH_MAX];
	uint64_t number;
	int r = snapshot_ino_descend(m->image, g->place->idx, g->place->path, m->n, &number, path);

	if (r == 1)
		origin_xattr_write(m->style, g->fd, path);
	return r == 0 ? snapshot_number_write(g->fd, number) : r < 0 ? r : 0;
}

static int make_partial(struct merging *g)
{
	int fd = source_pin(g->last->below), r;
	struct stat low;

	if (fd < 0)
		return fd;
	r = fstat(fd, &low) < 0 ? -errno : 0;
	fd_cache_unpin(&g->last->below->fd);
	if (r == 0 && ftruncate(g->fd, g->st.st_size) < 0)
		r = -errno;
	r = r ?: write_mark(g, &low);
	r = r ?: g->is_copy ? note_number(g) : 0;
	return r ?: copy_own(g);
}

static int make_whole(struct merging *g)
{
	int r = ftruncate(g->fd, g->st.st_size) < 0 ? -errno : copy_whole(g);

	return r ?: note_number(g);
}

/* ---- links ---- */

/* True without an origin, and with one that leads to the same file in the tree below. */
int snapshot_merge_keeps_number(const struct snapshot_merge *m, int fd, size_t idx,
				const char *path)
{
	struct layer *const *layers;
	char origin[PATH_MAX], below[PATH_MAX];
	uint64_t number;
	int r;

	image_layers(m->image, &layers);
	r = origin_xattr_read(fd, "", layers[idx]->is_doubted, origin);
	if (r <= 0)
		return r < 0 ? r : 1;
	r = snapshot_ino_descend(m->image, idx, path, m->n, &number, below);
	return r < 0 ? r : r == 1 && !strcmp(below, origin);
}

static bool can_be_copied(int r)
{
	return r == -EPERM || r == -EMLINK || r == -EXDEV;
}

/* 0: linked; 1: copy the file; -errno. */
static int link_whole(struct merging *g)
{
	const struct snapshot_merge_place *p = g->place;
	int r = snapshot_merge_keeps_number(g->files->merge, g->from, p->idx, p->path);

	if (r <= 0)
		return r < 0 ? r : 1;
	r = snapshot_links_make(g->files->merge->links, g->from, p->dirfd, p->name);
	return can_be_copied(r) ? 1 : r;
}

int snapshot_merge_files_link(struct snapshot_merge_files *f, const struct stat *st, int dirfd,
			      const char *name)
{
	for (struct hlink *l = htab_first(&f->copies, st->st_ino); l; l = htab_next(l)) {
		struct copied *c = container_of(l, struct copied, link);

		if (c->dev == st->st_dev && c->ino == st->st_ino)
			return linkat(f->merge->to, c->path, dirfd, name, 0) < 0 ? -errno : 1;
	}
	return 0;
}

int snapshot_merge_files_note(struct snapshot_merge_files *f, const struct stat *st,
			      const char *dir, const char *name)
{
	struct copied *c = st->st_nlink > 1 ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return st->st_nlink > 1 ? -ENOMEM : 0;
	c->dev = st->st_dev;
	c->ino = st->st_ino;
	if (asprintf(&c->path, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		c->path = NULL;
	if (c->path && htab_insert(&f->copies, &c->link, st->st_ino) == 0)
		return 0;
	free(c->path);
	free(c);
	return -ENOMEM;
}

/* ---- one file ---- */

static int copy(struct merging *g)
{
	const struct snapshot_merge_place *p = g->place;
	int r;

	g->fd = openat(p->dirfd, p->name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (g->fd < 0)
		return -errno;
	r = g->last ? make_partial(g) : make_whole(g);
	/* After the data: writing clears capabilities and set-id bits. */
	r = r ?: snapshot_merge_attributes(g->from, &g->st, g->fd);
	r = r ?: snapshot_merge_files_note(g->files, &g->st, p->dir, p->name);
	closep(&g->fd);
	return r;
}

/* The part directly above the first one that stays below. NULL: the snapshots have all parts, and
 * the new file is whole. */
static struct source *find_last(const struct snapshot_merge_files *f, struct source *top)
{
	struct source *s = top;

	while (s->below && layer_of(f, s->below) < f->merge->n)
		s = s->below;
	return s->below ? s : NULL;
}

static bool has_copy(const struct source *s, const struct source *last)
{
	while (s != last && !s->is_copy)
		s = s->below;
	return s->is_copy;
}

static int merge(struct merging *g)
{
	const struct snapshot_merge_place *p = g->place;
	int r = snapshot_merge_files_link(g->files, &g->st, p->dirfd, p->name);
	struct partial_xattr mark;

	if (r)
		return r < 0 ? r : 0;
	/* A plain file with a mark no longer needs its lower file, and must not keep the mark: copy
	 * it. */
	if (source_is_plain(g->top)) {
		r = source_read_mark(g->from, "", &mark, NULL) == 0 ? link_whole(g) : 1;
		return r == 1 ? copy(g) : r;
	}
	g->last = find_last(g->files, g->top);
	g->is_copy = g->last && has_copy(g->top, g->last);
	return copy(g);
}

int snapshot_merge_files_add(struct snapshot_merge_files *f, const struct snapshot_merge_place *p)
{
	struct merging g = { .files = f, .place = p, .fd = -1 };
	struct layer *const *layers;
	size_t n = image_layers(f->merge->image, &layers);
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	_cleanup_(closep) int fd = -1;
	int r = source_new(layers, n, p->idx, p->path, &g.top, &g.st);

	/* The server owns the file, but its mode denies access, and the copy must get that mode. */
	if (r == -EACCES) {
		fd = path_open(layers[p->idx]->rootfd, p->path, O_PATH | O_NOFOLLOW, 0);
		x = fd < 0 ? NULL : mode_relax_begin(fd, "");
		r = x ? source_new(layers, n, p->idx, p->path, &g.top, &g.st) : r;
		r = r ?: mode_relax_stat(fd, "", AT_EMPTY_PATH, &g.st);
	}
	if (r < 0) {
		source_free(g.top);
		return r;
	}
	g.from = source_pin(g.top);
	r = g.from < 0 ? g.from : merge(&g);
	if (g.from >= 0)
		fd_cache_unpin(&g.top->fd);
	source_free(g.top);
	return r;
}
