// SPDX-License-Identifier: Apache-2.0
/* Writing the file, one transaction a call, and keeping it within its bounds. */
#include "profile-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/prefetch/planner.h"

#include <limits.h>
#include <stdio.h>

#define ONCE_KEPT 16 /* starts after which items of one start alone are forgotten */

/* The statements of one transaction. */
struct writer {
	sqlite3_stmt *find_file, *add_file, *see_item, *put_item;
};

static void writer_release(struct writer *w)
{
	sqlite3_stmt **const all[] = { &w->find_file, &w->add_file, &w->see_item, &w->put_item };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		profile_finish(all[i]);
}

static int writer_init(struct profile *p, struct writer *w)
{
	const struct {
		sqlite3_stmt **s;
		const char *sql;
	} all[] = {
		{ &w->find_file, "SELECT id FROM file WHERE image = ?1 AND path = ?2" },
		{ &w->add_file, "INSERT INTO file(image, path, layer) VALUES(?1, ?2, ?3)"
				" ON CONFLICT(image, path) DO UPDATE SET layer = excluded.layer" },
		/* file, kind, extent, first_ms, place, start, time */
		{ &w->see_item, "INSERT INTO item VALUES(?1, ?2, ?3, 1, 1, ?4, ?5, ?6, ?7) ON "
				"CONFLICT DO UPDATE SET"
				" seen = seen << (?6 - last_start) | 1, count = count + 1, "
				"first_ms = ?4, place = ?5,"
				" last_start = ?6, last_seen = ?7" },
		{ &w->put_item,
		  "INSERT OR REPLACE INTO item VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(all) / sizeof(*all); i++)
		r = profile_prepare(p, all[i].sql, all[i].s);
	return r;
}

static int one_number(struct profile *p, const char *sql, int64_t a, int64_t *ret)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, sql, &s);

	if (r == 0 && sqlite3_bind_parameter_count(s))
		r = profile_bind(s, "i", a);
	r = r ?: profile_step(s);
	if (r == 1)
		*ret = sqlite3_column_int64(s, 0);
	return r == 1 ? 0 : r < 0 ? r : -ENOENT;
}

/* b is for statements with two parameters. */
static int run_with(struct profile *p, const char *sql, int64_t a, int64_t b)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, sql, &s);

	return r ?: profile_do(s, sqlite3_bind_parameter_count(s) > 1 ? "ii" : "i", a, b);
}

static int put_layers(struct profile *p, int64_t image, const uint64_t *layers, size_t n)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, "INSERT OR IGNORE INTO layer VALUES(?1, ?2, ?3)", &s);

	for (size_t i = 0; r == 0 && i < n; i++)
		r = profile_do(s, "iii", image, (int64_t)i, (int64_t)layers[i]);
	return r;
}

static int put_image(struct profile *p, const struct profile_image *img, int64_t *ret_id)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p,
				"INSERT INTO image(key, starts, last_seen, judged, precision, "
				"label) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"
				" ON CONFLICT(key) DO UPDATE SET starts = ?2, last_seen = ?3, "
				"judged = ?4, precision = ?5, label = ?6",
				&s);

	r = r
		    ?: profile_do(s, "iiiidt", (int64_t)img->key, (int64_t)img->starts,
				  img->last_seen, (int64_t)img->score.judged, img->score.precision,
				  img->label);
	return r ?: one_number(p, "SELECT id FROM image WHERE key = ?1", (int64_t)img->key, ret_id);
}

static int file_id(struct writer *w, int64_t image, const struct profile_file *f, int64_t *ret)
{
	int r = profile_do(w->add_file, "iti", image, f->path, (int64_t)f->layer);

	r = r ?: profile_bind(w->find_file, "it", image, f->path);
	r = r ?: profile_step(w->find_file);
	if (r == 1)
		*ret = sqlite3_column_int64(w->find_file, 0);
	sqlite3_reset(w->find_file);
	return r == 1 ? 0 : r < 0 ? r : -EUCLEAN;
}

static int64_t *file_ids(struct writer *w, int64_t image, const struct profile_file *files,
			 size_t n, int *ret_r)
{
	int64_t *ids = calloc(n + 1, sizeof(*ids));

	*ret_r = ids ? 0 : -ENOMEM;
	for (size_t i = 0; *ret_r == 0 && i < n; i++)
		*ret_r = file_id(w, image, &files[i], &ids[i]);
	return ids;
}

/* ---- bounds ---- */

#define ITEMS_OF_IMAGE "item WHERE file IN (SELECT id FROM file WHERE image = ?1)"

static int forget_image(struct profile *p, int64_t id)
{
	static const char *const all[] = {
		("DELETE FROM " ITEMS_OF_IMAGE),
		"DELETE FROM file WHERE image = ?1",
		"DELETE FROM layer WHERE image = ?1",
		"DELETE FROM image WHERE id = ?1",
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(all) / sizeof(*all); i++)
		r = run_with(p, all[i], id, 0);
	return r;
}

/* Remove items that cannot matter to a prediction any more, items that claim to be of a start to
 * come, and beyond that the longest unseen. */
static int prune_image(struct profile *p, int64_t id, int64_t starts)
{
	const struct {
		const char *sql;
		int64_t start;
	} due[] = {
		{ "DELETE FROM " ITEMS_OF_IMAGE " AND last_start < ?2",
		  starts - (int64_t)PREDICTOR_STARTS + 1 },
		{ "DELETE FROM " ITEMS_OF_IMAGE " AND last_start > ?2", starts },
		{ "DELETE FROM " ITEMS_OF_IMAGE " AND count = 1 AND last_start < ?2",
		  starts - ONCE_KEPT },
	};
	int64_t n = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(due) / sizeof(*due); i++)
		r = run_with(p, due[i].sql, id, due[i].start);
	r = r ?: one_number(p, "SELECT count(*) FROM " ITEMS_OF_IMAGE, id, &n);
	if (r == 0 && n > PROFILE_ITEMS_MAX)
		r = run_with(p,
			     "DELETE FROM item WHERE (file, kind, extent) IN (SELECT i.file, "
			     "i.kind, i.extent FROM item i"
			     " JOIN file f ON f.id = i.file WHERE f.image = ?1 ORDER BY "
			     "i.last_start, i.count LIMIT ?2)",
			     id, n - PROFILE_ITEMS_MAX);
	return r
		       ?: run_with(p,
				   "DELETE FROM file WHERE image = ?1 AND NOT EXISTS"
				   " (SELECT 1 FROM item WHERE file = file.id)",
				   id, 0);
}

/* Images that were not started for longest go until the rest is few, and leaves a quarter of the
 * file free. */
static int prune_images(struct profile *p, int64_t keep)
{
	int64_t images = 0, pages = 0, unused = 0, page = 0, id;
	int r = 0;

	while (r == 0) {
		r = r ?: one_number(p, "SELECT count(*) FROM image", 0, &images);
		r = r ?: one_number(p, "PRAGMA page_count", 0, &pages);
		r = r ?: one_number(p, "PRAGMA freelist_count", 0, &unused);
		r = r ?: one_number(p, "PRAGMA page_size", 0, &page);
		if (r < 0 || images < 2 ||
		    (images <= PROFILE_IMAGES_MAX &&
		     (pages - unused) * page <= PROFILE_BYTES_MAX / 4 * 3))
			return r;
		r = one_number(p,
			       "SELECT id FROM image WHERE id != ?1 ORDER BY last_seen, id LIMIT 1",
			       keep, &id);
		r = r ?: forget_image(p, id);
	}
	return r;
}

/* ---- the calls ---- */

static int finish(struct profile *p, int r, char *err, size_t err_size)
{
	if (r == 0)
		r = profile_run(p, "COMMIT");
	if (r == 0) {
		/* Room that is not given back now is so the next time. */
		profile_run(p, "PRAGMA incremental_vacuum");
		return 0;
	}
	profile_fail(r, err, err_size);
	profile_run(p, "ROLLBACK");
	return r;
}

static int see(struct profile *p, const struct profile_start *start, int64_t image, unsigned number)
{
	_cleanup_(writer_release) struct writer w = { 0 };
	_cleanup_(freep) int64_t *ids = NULL;
	int r = writer_init(p, &w);

	if (r == 0)
		ids = file_ids(&w, image, start->files, start->nfiles, &r);
	for (size_t i = 0; r == 0 && i < start->nitems; i++) {
		const struct profile_item *item = &start->items[i];

		r = profile_do(w.see_item, "iiiiiii", ids[item->file], (int64_t)item->kind,
			       (int64_t)item->extent, (int64_t)item->history.first_ms,
			       (int64_t)item->history.order, (int64_t)number, start->at);
	}
	return r;
}

/* Set the starts and the score to the stored ones of the key; they are zero at first. */
static int add_known(struct profile *p, struct profile_image *img)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, "SELECT starts, judged, precision FROM image WHERE key = ?1",
				&s);

	r = r ?: profile_bind(s, "i", (int64_t)img->key);
	r = r ?: profile_step(s);
	if (r == 1) {
		const int64_t starts = sqlite3_column_int64(s, 0),
			      judged = sqlite3_column_int64(s, 1);

		img->starts = starts > 0 && starts < INT_MAX ? (unsigned)starts : 0;
		img->score = (struct profile_score){ judged > 0 ? (uint64_t)judged : 0,
						     sqlite3_column_double(s, 2) };
	}
	return r < 0 ? r : 0;
}

int profile_store(struct profile *p, const struct profile_stack *s,
		  const struct profile_start *start, char *err, size_t err_size)
{
	struct profile_image img = { .key = profile_image_key(s),
				     .last_seen = start->at,
				     .label = (char *)s->label };
	int64_t id;
	int r = profile_run(p, "BEGIN IMMEDIATE");

	if (r < 0)
		return profile_fail(r, err, err_size);
	r = add_known(p, &img);
	if (start->is_judged)
		planner_score(&img.score, start->precision, img.starts);
	img.starts++;
	r = r ?: put_image(p, &img, &id);
	r = r ?: put_layers(p, id, s->layers, s->n);
	r = r ?: see(p, start, id, img.starts);
	r = r ?: prune_image(p, id, img.starts);
	r = r ?: prune_images(p, id);
	return finish(p, r, err, err_size);
}

static int put_items(struct profile *p, const struct profile_image *img, int64_t image)
{
	_cleanup_(writer_release) struct writer w = { 0 };
	_cleanup_(freep) int64_t *ids = NULL;
	int r = writer_init(p, &w);

	if (r == 0)
		ids = file_ids(&w, image, img->files, img->nfiles, &r);
	for (size_t i = 0; r == 0 && i < img->nitems; i++) {
		const struct profile_item *item = &img->items[i];
		const struct predictor_item *h = &item->history;
		const int ago = h->seen ? __builtin_ctzll(h->seen) : (int)PREDICTOR_STARTS;

		if (!h->seen || (unsigned)ago >= img->starts || item->file >= img->nfiles)
			continue;
		r = profile_do(w.put_item, "iiiiiiiii", ids[item->file], (int64_t)item->kind,
			       (int64_t)item->extent, (int64_t)(h->seen >> ago), (int64_t)h->count,
			       (int64_t)h->first_ms, (int64_t)h->order, (int64_t)img->starts - ago,
			       item->last_seen);
	}
	return r;
}

int profile_put(struct profile *p, const struct profile_image *img, char *err, size_t err_size)
{
	int64_t id;
	int r = profile_run(p, "BEGIN IMMEDIATE");

	if (r < 0)
		return profile_fail(r, err, err_size);
	r = one_number(p, "SELECT id FROM image WHERE key = ?1", (int64_t)img->key, &id);
	r = r == -ENOENT ? 0 : r ?: forget_image(p, id);
	r = r ?: put_image(p, img, &id);
	r = r ?: put_layers(p, id, img->layers, img->nlayers);
	r = r ?: put_items(p, img, id);
	r = r ?: prune_image(p, id, img->starts);
	r = r ?: prune_images(p, id);
	return finish(p, r, err, err_size);
}

int profile_forget(struct profile *p, uint64_t key, char *err, size_t err_size)
{
	int64_t id;
	int r = profile_run(p, "BEGIN IMMEDIATE");

	if (r < 0)
		return profile_fail(r, err, err_size);
	if (key) {
		r = one_number(p, "SELECT id FROM image WHERE key = ?1", (int64_t)key, &id);
		if (r == -ENOENT) {
			profile_run(p, "ROLLBACK");
			return r;
		}
		r = r ?: forget_image(p, id);
	} else {
		r = profile_run(
			p,
			"DELETE FROM item; DELETE FROM file; DELETE FROM layer; DELETE FROM image");
	}
	return finish(p, r, err, err_size);
}
