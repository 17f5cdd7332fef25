// SPDX-License-Identifier: Apache-2.0
#include "profile_merge.h"

#include "profile_format.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"

#include <string.h>

#define ONCE_KEPT 16 /* starts after which items of one start alone are forgotten */

struct row {
	struct profile_file file;
	struct profile_item item;
	bool is_new;
};

struct rows {
	struct row *all;
	size_t n;
};

static int by_path(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return strcmp(x->file.path, y->file.path)
		       ?: COMPARE(x->item.kind, y->item.kind)
		       ?: COMPARE(x->item.extent, y->item.extent)
		       ?: COMPARE(y->is_new, x->is_new);
}

static int ago(const struct row *r)
{
	return __builtin_ctzll(r->item.history.seen);
}

/* Those first that are kept longest. */
static int by_rank(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return COMPARE(ago(x), ago(y))
		       ?: COMPARE(y->item.history.count, x->item.history.count) ?: by_path(a, b);
}

/* Items of the image that can matter. A file may claim bits of starts that never were. */
static void add_known(struct rows *rows, const struct profile_image *img, bool is_older)
{
	const uint64_t possible = img->starts < PREDICTOR_STARTS ? (1ull << img->starts) - 1
								 : UINT64_MAX;

	for (size_t i = 0; i < img->nitems; i++) {
		struct row *r = &rows->all[rows->n];

		if (img->items[i].file >= img->nfiles)
			continue;
		*r = (struct row){ img->files[img->items[i].file], img->items[i], false };
		r->item.history.seen = (r->item.history.seen & possible) << is_older;
		if (r->item.history.seen && (r->item.history.count > 1 || ago(r) <= ONCE_KEPT))
			rows->n++;
	}
}

static void add_start(struct rows *rows, const struct profile_start *start)
{
	for (size_t i = 0; i < start->nitems; i++) {
		struct row *r = &rows->all[rows->n++];

		*r = (struct row){ start->files[start->items[i].file], start->items[i], true };
		r->item.last_seen = start->at;
		r->item.history.seen = r->item.history.count = 1;
	}
}

/* Sorted by path, equal ones joined: the first, which is the new one if there is one, stays. */
static void join(struct rows *rows)
{
	size_t n = 0;

	qsort(rows->all, rows->n, sizeof(*rows->all), by_path);
	for (size_t i = 0; i < rows->n; i++) {
		struct row *last = n ? &rows->all[n - 1] : NULL, *r = &rows->all[i];

		if (!last || strcmp(last->file.path, r->file.path) != 0 ||
		    last->item.kind != r->item.kind || last->item.extent != r->item.extent) {
			rows->all[n++] = *r;
		} else if (last->is_new && !r->is_new) {
			last->item.history.seen |= r->item.history.seen;
			if (r->item.history.count < UINT32_MAX)
				last->item.history.count = r->item.history.count + 1;
		}
	}
	rows->n = n;
}

/* Number the paths. Returns how many. */
static uint32_t number(struct rows *rows)
{
	uint32_t n = 0;

	for (size_t i = 0; i < rows->n; i++) {
		if (i && strcmp(rows->all[i - 1].file.path, rows->all[i].file.path) != 0)
			n++;
		rows->all[i].item.file = n;
	}
	return rows->n ? n + 1 : 0;
}

/* Drop what has not been seen for longest, until the rest is few. */
static int prune(struct rows *rows)
{
	_cleanup_(freep) bool *has_path = calloc(number(rows) + 1u, sizeof(*has_path));
	size_t bytes = 2 * sizeof(uint32_t), n = 0;

	if (!has_path)
		return -ENOMEM;
	qsort(rows->all, rows->n, sizeof(*rows->all), by_rank);
	for (; n < rows->n && n < PROFILE_ITEMS_MAX; n++) {
		const struct row *r = &rows->all[n];

		bytes += PROFILE_FORMAT_ITEM_BYTES;
		if (!has_path[r->item.file])
			bytes += PROFILE_FORMAT_FILE_BYTES + strlen(r->file.path);
		if (bytes > PROFILE_FORMAT_BODY_MAX)
			break;
		has_path[r->item.file] = true;
	}
	rows->n = n;
	qsort(rows->all, rows->n, sizeof(*rows->all), by_path);
	return 0;
}

static int give(struct rows *rows, struct profile_image *ret)
{
	ret->nfiles = number(rows);
	ret->nitems = rows->n;
	ret->files = calloc(ret->nfiles + 1, sizeof(*ret->files));
	ret->items = calloc(ret->nitems + 1, sizeof(*ret->items));
	if (!ret->files || !ret->items)
		return -ENOMEM;
	for (size_t i = 0; i < rows->n; i++) {
		const struct row *r = &rows->all[i];
		struct profile_file *f = &ret->files[r->item.file];

		ret->items[i] = r->item;
		/* A start knows the layer that has the file now. */
		if (!f->path || r->is_new)
			*f = r->file;
	}
	return 0;
}

int profile_merge(const struct profile_image *img, const struct profile_start *start,
		  struct profile_image *ret)
{
	_cleanup_(freep) struct row *all =
		calloc(img->nitems + (start ? start->nitems : 0) + 1, sizeof(*all));
	struct rows rows = { all, 0 };
	int r = all ? 0 : -ENOMEM;

	*ret = *img;
	ret->files = NULL;
	ret->items = NULL;
	ret->nfiles = ret->nitems = 0;
	if (r == 0) {
		add_known(&rows, img, start != NULL);
		if (start)
			add_start(&rows, start);
		join(&rows);
		r = prune(&rows);
	}
	ret->starts += start != NULL;
	return r ?: give(&rows, ret);
}

void profile_merge_release(struct profile_image *merged)
{
	free(merged->files);
	free(merged->items);
	*merged = (struct profile_image){ 0 };
}
