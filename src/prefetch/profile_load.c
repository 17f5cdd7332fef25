// SPDX-License-Identifier: Apache-2.0
/* Reading the file. With any content: nonsense is left out, and never more than the bounds is
 * read. */
#include "profile-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/path.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define EXTENTS_MAX 0x100000 /* of a file */

static const char select_image[] =
	"SELECT id, key, starts, last_seen, judged, precision, label FROM image ";
static const char select_items[] =
	"SELECT f.id, f.path, f.layer, i.kind, i.extent, i.seen, i.count, i.first_ms, i.place, "
	"i.last_start, i.last_seen"
	" FROM file f JOIN item i ON i.file = f.id WHERE f.image = ?1"
	" AND (?2 = 0 OR f.layer IN (SELECT key FROM temp.mine)) ORDER BY f.id LIMIT ?3";

void profile_image_release(struct profile_image *img)
{
	for (size_t i = 0; i < img->nfiles; i++)
		free(img->files[i].path);
	free(img->files);
	free(img->items);
	free(img->label);
	free(img->layers);
	*img = (struct profile_image){ 0 };
}

static uint32_t number(sqlite3_stmt *s, int column, uint32_t max)
{
	const int64_t n = sqlite3_column_int64(s, column);

	return n < 0 ? 0 : n > max ? max : (uint32_t)n;
}

static char *text(sqlite3_stmt *s, int column)
{
	const void *p = sqlite3_column_blob(s, column);

	return strndup(p ? p : "", (size_t)sqlite3_column_bytes(s, column));
}

/* The row's file, which is the last one or new. 1: it is nothing that could be in a layer. */
static int take_file(sqlite3_stmt *s, int64_t *last_id, struct profile_image *img)
{
	const int64_t id = sqlite3_column_int64(s, 0);
	const void *path = sqlite3_column_blob(s, 1);
	const size_t len = (size_t)sqlite3_column_bytes(s, 1);
	int r;

	if (!path || memchr(path, 0, len) || !path_is_plain(path, len))
		return 1;
	if (img->nfiles && id == *last_id)
		return 0;
	r = array_grow(&img->files, img->nfiles);
	if (r < 0)
		return r;
	img->files[img->nfiles] =
		(struct profile_file){ strndup(path, len), (uint64_t)sqlite3_column_int64(s, 2) };
	if (!img->files[img->nfiles].path)
		return -ENOMEM;
	img->nfiles++;
	*last_id = id;
	return 0;
}

static uint64_t shifted(int64_t seen, uint32_t by)
{
	return by < PREDICTOR_STARTS ? (uint64_t)seen << by : 0;
}

static int take_item(sqlite3_stmt *s, struct profile_image *img)
{
	const int64_t extent = sqlite3_column_int64(s, 4), kind = sqlite3_column_int64(s, 3);
	const uint32_t last = number(s, 9, UINT32_MAX);
	int r;

	if (extent < 0 || extent >= EXTENTS_MAX || kind < 0 || kind >= PROFILE_KINDS ||
	    last > img->starts)
		return 0;
	r = array_grow(&img->items, img->nitems);
	if (r < 0)
		return r;
	img->items[img->nitems++] = (struct profile_item){
		.file = (uint32_t)img->nfiles - 1,
		.extent = (uint32_t)extent,
		.kind = (enum profile_kind)kind,
		.last_seen = sqlite3_column_int64(s, 10),
		.history = {
			.seen = shifted(sqlite3_column_int64(s, 5), img->starts - last),
			.count = number(s, 6, UINT32_MAX),
			.first_ms = number(s, 7, UINT32_MAX),
			.order = number(s, 8, UINT32_MAX),
		},
	};
	return 0;
}

static int load_items(struct profile *p, int64_t id, bool is_borrowed, struct profile_image *img)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, select_items, &s);
	int64_t last_id = 0;

	r = r ?: profile_bind(s, "iii", id, (int64_t)is_borrowed, (int64_t)PROFILE_ITEMS_MAX);
	while (r == 0 && (r = profile_step(s)) == 1) {
		r = take_file(s, &last_id, img);
		r = r < 0 ? r : r > 0 ? 0 : take_item(s, img);
	}
	return r;
}

/* The row of select_image. */
static int take_image(sqlite3_stmt *s, struct profile_image *img)
{
	const double precision = sqlite3_column_double(s, 5);

	*img = (struct profile_image){
		.key = (uint64_t)sqlite3_column_int64(s, 1),
		.starts = number(s, 2, INT32_MAX),
		.last_seen = sqlite3_column_int64(s, 3),
		.score = { number(s, 4, INT32_MAX),
			   precision >= 0 && precision <= 1 ? precision : 0 },
		.label = text(s, 6),
	};
	return img->label ? 0 : -ENOMEM;
}

static int select_one(struct profile *p, const char *where, sqlite3_stmt **ret)
{
	char sql[512];

	snprintf(sql, sizeof(sql), "%s%s", select_image, where);
	return profile_prepare(p, sql, ret);
}

/* 1: *ret_id; 0: it was never seen. */
static int find_own(struct profile *p, const struct profile_stack *s, int64_t *ret_id,
		    struct profile_image *ret)
{
	_cleanup_(profile_finish) sqlite3_stmt *find = NULL;
	int r = select_one(p, "WHERE key = ?1", &find);

	r = r ?: profile_bind(find, "i", (int64_t)profile_image_key(s));
	r = r ?: profile_step(find);
	if (r != 1)
		return r;
	*ret_id = sqlite3_column_int64(find, 0);
	r = take_image(find, ret);
	return r < 0 ? r : 1;
}

static int note_layers(struct profile *p, const struct profile_stack *s)
{
	_cleanup_(profile_finish) sqlite3_stmt *add = NULL;
	int r = profile_run(p, "CREATE TEMP TABLE IF NOT EXISTS mine(key INTEGER PRIMARY KEY); "
			       "DELETE FROM temp.mine");

	r = r ?: profile_prepare(p, "INSERT OR IGNORE INTO temp.mine VALUES(?1)", &add);
	for (size_t i = 0; r == 0 && i < s->n; i++)
		r = profile_do(add, "i", (int64_t)s->layers[i]);
	return r;
}

static int find_relative(struct profile *p, int64_t *ret_id, struct profile_image *ret)
{
	_cleanup_(profile_finish) sqlite3_stmt *find = NULL;
	int r = select_one(p,
			   "WHERE id = (SELECT l.image FROM layer l JOIN image m ON m.id = l.image "
			   "WHERE l.key IN"
			   " (SELECT key FROM temp.mine) GROUP BY l.image ORDER BY count(*) DESC, "
			   "m.last_seen DESC LIMIT 1)",
			   &find);
	r = r ?: profile_step(find);
	if (r != 1)
		return r;
	*ret_id = sqlite3_column_int64(find, 0);
	r = take_image(find, ret);
	ret->is_borrowed = true;
	return r < 0 ? r : 1;
}

int profile_load(struct profile *p, const struct profile_stack *s, struct profile_image *ret,
		 char *err, size_t err_size)
{
	int64_t id = 0;
	int r = profile_run(p, "BEGIN");

	*ret = (struct profile_image){ 0 };
	r = r ?: note_layers(p, s);
	r = r ?: find_own(p, s, &id, ret);
	if (r == 0)
		r = find_relative(p, &id, ret);
	if (r == 1)
		r = load_items(p, id, ret->is_borrowed, ret);
	if (r < 0) {
		r = profile_fail(r, err, err_size);
		profile_image_release(ret);
	}
	profile_run(p, "ROLLBACK");
	return r;
}

static int load_layers(struct profile *p, int64_t id, struct profile_image *img)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(
		p, "SELECT key FROM layer WHERE image = ?1 ORDER BY pos LIMIT 65536", &s);

	r = r ?: profile_bind(s, "i", id);
	while (r == 0 && (r = profile_step(s)) == 1) {
		r = array_grow(&img->layers, img->nlayers);
		if (r == 0)
			img->layers[img->nlayers++] = (uint64_t)sqlite3_column_int64(s, 0);
	}
	return r;
}

int profile_each(struct profile *p, bool wants_items,
		 int (*fn)(const struct profile_image *img, void *arg), void *arg, char *err,
		 size_t err_size)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_run(p, "BEGIN"), said = 0;
	const struct profile_stack none = { .n = 0 };

	r = r ?: note_layers(p, &none);
	r = r ?: select_one(p, "ORDER BY last_seen DESC, id DESC", &s);
	while (r == 0 && said == 0 && (r = profile_step(s)) == 1) {
		_cleanup_(profile_image_release) struct profile_image img = { 0 };
		const int64_t id = sqlite3_column_int64(s, 0);

		r = take_image(s, &img);
		r = r ?: load_layers(p, id, &img);
		if (wants_items)
			r = r ?: load_items(p, id, false, &img);
		if (r == 0)
			said = fn(&img, arg);
	}
	if (r < 0)
		r = profile_fail(r, err, err_size);
	profile_finish(&s);
	s = NULL;
	profile_run(p, "ROLLBACK");
	return r < 0 ? r : said;
}
