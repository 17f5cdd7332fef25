// SPDX-License-Identifier: Apache-2.0
#include "delta_extents.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"

#include <dirent.h>
#include <string.h>

/* in bytes; a smaller gain is not worth a mark, an entry of the map and a lookup of the base */
#define BASE_MIN (16u << 10) /* bytes */
/* A mark with a longer path, and its seal, may not fit beside other attributes (ext4). */
#define BASE_PATH_MAX 1024

struct finding {
	struct delta_extents *x;
	struct source *top, *base; /* base: the first part of top that is in a layer below */
	uint64_t size;
};

void delta_extents_release(struct delta_extents *x)
{
	free(x->v);
	free(x->base);
	*x = (struct delta_extents){ 0 };
}

static int put(struct finding *f, enum delta_extent_kind kind, uint64_t off, uint64_t end)
{
	struct delta_extents *x = f->x;
	struct delta_extent *last = x->n ? &x->v[x->n - 1] : NULL;

	if (end <= off)
		return 0;
	x->data += kind == DELTA_EXTENT_DATA ? end - off : 0;
	if (last && last->kind == kind) {
		last->len += end - off;
		return 0;
	}
	if (array_reserve(&x->v, &x->cap, x->n + 1) < 0)
		return -ENOMEM;
	x->v[x->n++] = (struct delta_extent){ off, end - off, kind };
	return 0;
}

/* ---- the base ---- */

static bool is_above(struct layer *const *layers, size_t n_upper, const struct layer *l)
{
	for (size_t k = 0; k < n_upper; k++)
		if (layers[k] == l)
			return true;
	return false;
}

/* Does the image below show this file at that path? */
static bool is_there(struct image *below, const char *path, const struct source *base)
{
	struct image_entry *e;
	struct source *s;

	return image_lookup_path(below, path, &e) == 0 && e->type == DT_REG &&
	       image_source(below, e, &s) == 0 && s->layer == base->layer && s->path &&
	       base->path && !strcmp(s->path, base->path);
}

/* last: the part directly above the base; NULL: none. */
static int find_path(struct finding *f, struct image *below, struct source *last, const char *path)
{
	char by_mark[PATH_MAX];
	const char *found = NULL;

	if (is_there(below, path, f->base))
		found = path;
	else if (last && source_path_below(last, by_mark) == 0 && is_there(below, by_mark, f->base))
		found = by_mark;
	else if (f->base->path && is_there(below, f->base->path, f->base))
		found = f->base->path;
	if (!found || (strlen(found) > BASE_PATH_MAX && (found != path || f->x->is_copy)))
		return 0;
	f->x->base = strdup(found);
	return f->x->base ? 0 : -ENOMEM;
}

static int find_base(struct finding *f, const struct diff *d, const char *path)
{
	struct layer *const *layers;
	struct source *last = NULL;
	struct image_entry *e;
	struct stat st;
	int r;

	image_layers(d->full, &layers);
	f->base = f->top;
	while (f->base && is_above(layers, d->n_upper, f->base->layer)) {
		last = f->base;
		f->x->is_copy |= last->is_copy;
		f->base = source_is_plain(last) ? NULL : last->below;
	}
	if (!f->base || f->size < BASE_MIN)
		return 0;
	r = find_path(f, d->below, last, path);
	if (r < 0 || !f->x->base)
		return r;
	r = image_lookup_path(d->below, f->x->base, &e) ?: image_stat(d->below, e, &st);
	f->x->base_size = r == 0 ? (uint64_t)st.st_size : 0;
	return r;
}

/* ---- the ranges ---- */

static bool is_of_base(const struct finding *f, const struct source *s)
{
	for (const struct source *b = f->base; b; b = b->below)
		if (b == s)
			return true;
	return false;
}

/* Put the blocks of a range of the base that a map can describe; the rest of the last block is
 * data. */
static int put_base(struct finding *f, uint64_t off, uint64_t end, uint64_t *ret_end)
{
	const uint64_t whole = end & ~(uint64_t)(BLK_BYTES - 1);

	*ret_end = end;
	if (end == whole || end == MIN(f->x->base_size, f->size))
		return put(f, DELTA_EXTENT_BASE, off, end);
	*ret_end = MIN(whole + BLK_BYTES, f->size);
	return put(f, DELTA_EXTENT_BASE, off, whole)
		       ?: put(f, DELTA_EXTENT_DATA, MAX(off, whole), *ret_end);
}

static uint64_t round_up(uint64_t off)
{
	return (off + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
}

/* [off, end) is data, except its holes of whole blocks. */
static int put_data(struct finding *f, uint64_t off, uint64_t end)
{
	int r = 0;

	while (r == 0 && off < end) {
		off_t data = read_source_seek(f->top, (off_t)off, (off_t)end, SEEK_DATA), hole;

		if (data == -ENXIO)
			return put(f, DELTA_EXTENT_ZEROS, off, end);
		hole = data < 0 ? data : read_source_seek(f->top, data, (off_t)end, SEEK_HOLE);
		if (hole < 0 || hole <= (off_t)off)
			return hole < 0 ? (int)hole : -EIO;
		data = MAX((off_t)off, data & ~(off_t)(BLK_BYTES - 1));
		hole = (off_t)MIN(round_up((uint64_t)hole), end);
		r = put(f, DELTA_EXTENT_ZEROS, off, (uint64_t)data)
			    ?: put(f, DELTA_EXTENT_DATA, (uint64_t)data, (uint64_t)hole);
		off = (uint64_t)hole;
	}
	return r;
}

/* Holes of a file that has grown beyond its base are zeros there. */
static int put_own(struct finding *f, uint64_t off, uint64_t end)
{
	const uint64_t grown = MAX(off, round_up(MIN(f->x->base_size, f->size)));

	return put(f, DELTA_EXTENT_DATA, off, MIN(grown, end)) ?: put_data(f, grown, end);
}

static int put_run(struct finding *f, const struct run *run, uint64_t *ret_end)
{
	const uint64_t end = run->off + run->len;

	*ret_end = end;
	if (run->src && is_of_base(f, run->src))
		return put_base(f, run->off, end, ret_end);
	/* Extend the run to a whole block, where another part cuts it off. */
	if (run->src)
		*ret_end = MIN(round_up(end), f->size);
	return run->src ? put_own(f, run->off, *ret_end)
			: put(f, DELTA_EXTENT_ZEROS, run->off, *ret_end);
}

static int find_ranges(struct finding *f)
{
	uint64_t off = 0, end;
	int r = 0;

	if (!f->x->base)
		return put_data(f, 0, f->size);
	while (r == 0 && off < f->size) {
		struct run run;

		r = run_find(f->top, off, f->size - off, &run);
		r = r ?: put_run(f, &run, &end);
		off = end;
	}
	return r;
}

static uint64_t count_base(const struct delta_extents *x)
{
	uint64_t sum = 0;

	for (size_t k = 0; k < x->n; k++)
		sum += x->v[k].kind == DELTA_EXTENT_BASE ? x->v[k].len : 0;
	return sum;
}

int delta_extents_find(const struct diff *d, struct source *top, const char *path, uint64_t size,
		       struct delta_extents *ret)
{
	struct finding f = { .x = ret, .top = top, .size = size };
	int r;

	*ret = (struct delta_extents){ 0 };
	r = find_base(&f, d, path) ?: find_ranges(&f);
	if (r == 0 && ret->base && count_base(ret) < MIN(BASE_MIN, size)) {
		delta_extents_release(ret);
		r = find_ranges(&f);
	}
	return r;
}
