// SPDX-License-Identifier: Apache-2.0
#include "trace_collect.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE		4096u
#define LOOK_BYTES	(64u << 20) /* of a file, at its front */
#define LOOK_FILES	4096u
#define PAGES_AN_EXTENT (TRACE_EXTENT_SIZE / PAGE)

uint64_t *trace_collect_layers(struct image *img, size_t *ret_n)
{
	struct layer *const *layers;
	uint64_t *keys;

	*ret_n = image_layers(img, &layers);
	keys = malloc(*ret_n * sizeof(*keys));
	for (size_t i = 0; keys && i < *ret_n; i++)
		keys[i] = profile_layer_key(layers[i]->dev, layers[i]->ino, layers[i]->btime.tv_sec,
					    layers[i]->btime.tv_nsec);
	return keys;
}

static uint64_t layer_of(struct image *img, const struct image_entry *e)
{
	struct layer *const *layers;
	size_t n = image_layers(img, &layers);

	if (e->layer >= n)
		return 0;
	return profile_layer_key(layers[e->layer]->dev, layers[e->layer]->ino,
				 layers[e->layer]->btime.tv_sec, layers[e->layer]->btime.tv_nsec);
}

/* ---- cached extents ---- */

/* Find which pages of the front of a file are cached; returns how many were asked for. */
static size_t cached_pages(struct image *img, struct image_entry *e, unsigned char *pages)
{
	struct source *s;
	struct stat st;
	size_t len = 0, npages = 0;
	void *map;
	int fd;

	if (image_source(img, e, &s) < 0 || !source_is_plain(s) || (fd = source_pin(s)) < 0)
		return 0;
	if (fstat(fd, &st) == 0)
		len = st.st_size < (off_t)LOOK_BYTES ? (size_t)st.st_size : LOOK_BYTES;
	/* Never looked into: a file that gets shorter does no harm. */
	map = len ? mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
	fd_cache_unpin(&s->fd);
	if (map == MAP_FAILED)
		return 0;
	if (mincore(map, len, pages) == 0)
		npages = (len + PAGE - 1) / PAGE;
	munmap(map, len);
	return npages;
}

static bool is_any_set(const unsigned char *pages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pages[i] & 1)
			return true;
	return false;
}

/* The extents of a file that was opened, as touches of its time. */
static void look_into(struct image *img, const struct trace_touch *opened, unsigned char *pages,
		      struct trace_touch *ret, size_t *n)
{
	size_t npages = cached_pages(img, (struct image_entry *)opened->file, pages);

	for (size_t first = 0; first < npages && *n < TRACE_TOUCHES_MAX; first += PAGES_AN_EXTENT) {
		size_t left = npages - first;

		if (!is_any_set(pages + first, MIN(left, PAGES_AN_EXTENT)))
			continue;
		ret[(*n)++] = (struct trace_touch){ opened->file,
						    (uint32_t)(first / PAGES_AN_EXTENT), opened->ms,
						    TRACE_READ };
	}
}

/* Each place once, with its earliest time. */
static size_t unite(struct trace_touch *touches, size_t n)
{
	size_t kept = 0;

	qsort(touches, n, sizeof(*touches), trace_by_place);
	for (size_t i = 0; i < n; i++) {
		const struct trace_touch *last = kept ? &touches[kept - 1] : NULL;

		if (!last || last->file != touches[i].file || last->kind != touches[i].kind ||
		    last->extent != touches[i].extent)
			touches[kept++] = touches[i];
	}
	return kept;
}

/* Touches with those of opened files in place of the opening. */
static struct trace_touch *complete(struct image *img, const struct trace_touch *touches, size_t n,
				    size_t *ret_n)
{
	struct trace_touch *all = malloc(TRACE_TOUCHES_MAX * sizeof(*all));
	_cleanup_(freep) unsigned char *pages = malloc(LOOK_BYTES / PAGE);
	size_t looked = 0;

	*ret_n = 0;
	for (size_t i = 0; all && pages && i < n && *ret_n < TRACE_TOUCHES_MAX; i++) {
		if (touches[i].kind != TRACE_OPENED)
			all[(*ret_n)++] = touches[i];
		else if (looked++ < LOOK_FILES)
			look_into(img, &touches[i], pages, all, ret_n);
	}
	if (!all || !pages) {
		free(all);
		return NULL;
	}
	*ret_n = unite(all, *ret_n);
	return all;
}

/* ---- the start ---- */

static int by_time(const void *a, const void *b)
{
	const struct trace_touch *s = a, *t = b;

	return COMPARE(s->ms, t->ms) ?: COMPARE(s->file, t->file) ?: COMPARE(s->extent, t->extent);
}

struct known {
	const void *file;
	uint32_t index;
};

static int by_file(const void *a, const void *b)
{
	const struct known *s = a, *t = b;

	return COMPARE(s->file, t->file);
}

/* The files of the touches, by their address. */
static struct known *files_of(const struct trace_touch *touches, size_t n, size_t *ret_n)
{
	struct known *files = malloc((n + 1) * sizeof(*files));
	size_t kept = 0;

	for (size_t i = 0; files && i < n; i++)
		files[i].file = touches[i].file;
	if (files)
		qsort(files, n, sizeof(*files), by_file);
	for (size_t i = 0; files && i < n; i++)
		if (!i || files[i].file != files[i - 1].file)
			files[kept++].file = files[i].file;
	*ret_n = kept;
	return files;
}

/* Numbered; a file without a path that fits a profile has index UINT32_MAX. */
static int name_files(struct image *img, struct known *files, size_t n, struct trace_collect *h)
{
	h->files = calloc(n + 1, sizeof(*h->files));
	if (!h->files)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct image_entry *e = files[i].file;
		char *path = image_path(e);

		files[i].index = UINT32_MAX;
		if (!path)
			return -ENOMEM;
		if (!path_is_plain(path, strlen(path))) {
			free(path);
			continue;
		}
		files[i].index = (uint32_t)h->start.nfiles;
		h->files[h->start.nfiles++] = (struct profile_file){ path, layer_of(img, e) };
	}
	return 0;
}

static int take_items(struct image *img, const struct trace_touch *touches, size_t n,
		      struct trace_collect *h)
{
	size_t nfiles;
	_cleanup_(freep) struct known *files = files_of(touches, n, &nfiles);
	uint32_t order = 0;
	int r = files ? name_files(img, files, nfiles, h) : -ENOMEM;

	h->items = r == 0 ? calloc(n + 1, sizeof(*h->items)) : NULL;
	if (!h->items)
		return r < 0 ? r : -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct known *k, wanted = { touches[i].file, 0 };

		k = bsearch(&wanted, files, nfiles, sizeof(*files), by_file);
		if (!k || k->index == UINT32_MAX)
			continue;
		h->items[h->start.nitems++] = (struct profile_item){
			.file = k->index,
			.extent = touches[i].extent,
			.kind = touches[i].kind == TRACE_WRITTEN ? PROFILE_WRITTEN : PROFILE_READ,
			.history = { .first_ms = touches[i].ms, .order = order++ },
		};
	}
	return 0;
}

int trace_collect_take(struct image *img, struct trace *t, struct trace_collect *ret)
{
	_cleanup_(freep) struct trace_touch *touches = NULL;
	_cleanup_(freep) struct trace_touch *all = NULL;
	ssize_t n = trace_take(t, &touches);
	size_t nall;
	int r;

	*ret = (struct trace_collect){ .start.at = time(NULL) };
	if (n < 0)
		return (int)n;
	for (ssize_t i = 0; i < n; i++)
		ret->has_unseen |= touches[i].kind == TRACE_OPENED;
	all = complete(img, touches, (size_t)n, &nall);
	if (!all)
		return -ENOMEM;
	qsort(all, nall, sizeof(*all), by_time);
	r = take_items(img, all, nall, ret);
	ret->start.files = ret->files;
	ret->start.items = ret->items;
	if (r < 0)
		trace_collect_release(ret);
	return r;
}

void trace_collect_release(struct trace_collect *h)
{
	for (size_t i = 0; h->files && i < h->start.nfiles; i++)
		free(h->files[i].path);
	free(h->files);
	free(h->items);
	*h = (struct trace_collect){ .files = NULL };
}
