// SPDX-License-Identifier: Apache-2.0
#include "profile_format.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/base/hash.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/path.h"

#include <limits.h>
#include <string.h>

#define MAGIC	    0x46525056u /* "VPRF" */
#define VERSION	    1u
#define EXTENTS_MAX 0x100000u /* of a file */
#define LEFT_OUT    UINT32_MAX

/* ---- out ---- */

static int put_text(struct buf *b, const char *s)
{
	const size_t len = MIN(strlen(s), (size_t)PATH_MAX);

	return buf_put_u16(b, (uint16_t)len) ?: buf_put(b, s, len);
}

static int put_head(struct buf *b, const struct profile_image *img)
{
	const size_t nlayers = MIN(img->nlayers, (size_t)PROFILE_LAYERS_MAX);
	uint64_t precision;
	int r;

	memcpy(&precision, &img->score.precision, sizeof(precision));
	r = buf_put_u64(b, img->key);
	r = r ?: buf_put_u32(b, img->starts);
	r = r ?: buf_put_u32(b, (uint32_t)MIN(img->score.judged, (uint64_t)INT32_MAX));
	r = r ?: buf_put_u64(b, precision);
	r = r ?: buf_put_u64(b, (uint64_t)img->last_seen);
	r = r ?: buf_put_u32(b, (uint32_t)nlayers);
	for (size_t i = 0; i < nlayers; i++)
		r = r ?: buf_put_u64(b, img->layers[i]);
	return r ?: put_text(b, img->label);
}

static int put_item(struct buf *b, const struct profile_item *item)
{
	const struct predictor_item *h = &item->history;
	int r = buf_put_u32(b, item->file);

	r = r ?: buf_put_u32(b, item->extent);
	r = r ?: buf_put_u8(b, (uint8_t)item->kind);
	r = r ?: buf_put_u64(b, (uint64_t)item->last_seen);
	r = r ?: buf_put_u64(b, h->seen);
	r = r ?: buf_put_u32(b, h->count);
	r = r ?: buf_put_u32(b, h->first_ms);
	return r ?: buf_put_u32(b, h->order);
}

static int put_body(struct buf *b, const struct profile_image *img)
{
	int r = buf_put_u32(b, (uint32_t)img->nfiles);

	r = r ?: buf_put_u32(b, (uint32_t)img->nitems);
	for (size_t i = 0; i < img->nfiles; i++) {
		r = r ?: buf_put_u64(b, img->files[i].layer);
		r = r ?: put_text(b, img->files[i].path);
	}
	for (size_t i = 0; i < img->nitems; i++)
		r = r ?: put_item(b, &img->items[i]);
	return r;
}

int profile_format_encode(const struct profile_image *img, struct buf *ret)
{
	struct buf head = { 0 }, body = { 0 };
	int r = put_head(&head, img);

	r = r ?: put_body(&body, img);
	r = r ?: buf_put_u32(ret, MAGIC);
	r = r ?: buf_put_u32(ret, VERSION);
	r = r ?: buf_put_u32(ret, (uint32_t)head.len);
	r = r ?: buf_put_u32(ret, (uint32_t)body.len);
	r = r ?: buf_put_u64(ret, hash_checksum(head.data, head.len));
	r = r ?: buf_put_u64(ret, hash_checksum(body.data, body.len));
	r = r ?: buf_put(ret, head.data, head.len);
	r = r ?: buf_put(ret, body.data, body.len);
	buf_release(&head);
	buf_release(&body);
	return r;
}

/* ---- in ---- */

int profile_format_start(const uint8_t *p, struct profile_format *ret)
{
	struct cursor c = cursor_over(p, PROFILE_FORMAT_START);
	const uint32_t magic = cursor_u32(&c), version = cursor_u32(&c);

	ret->head = cursor_u32(&c);
	ret->body = cursor_u32(&c);
	ret->head_sum = cursor_u64(&c);
	ret->body_sum = cursor_u64(&c);
	if (magic != MAGIC || !version)
		return -EUCLEAN;
	if (version != VERSION)
		return -EPROTO;
	return ret->head > PROFILE_FORMAT_HEAD_MAX || ret->body > PROFILE_FORMAT_BODY_MAX ? -EUCLEAN
											  : 0;
}

/* malloc'd; NULL: no memory, or c->bad. */
static char *take_text(struct cursor *c)
{
	const uint16_t len = cursor_u16(c);
	const uint8_t *p = cursor_bytes(c, len);

	return p ? strndup((const char *)p, len) : NULL;
}

static uint32_t take_count(struct cursor *c)
{
	const uint32_t n = cursor_u32(c);

	return MIN(n, (uint32_t)INT32_MAX);
}

static int take_layers(struct cursor *c, struct profile_image *img)
{
	const uint32_t n = cursor_u32(c);

	if (n > PROFILE_LAYERS_MAX || n > cursor_left(c) / sizeof(uint64_t))
		return -EUCLEAN;
	img->layers = calloc(n + 1, sizeof(*img->layers));
	if (!img->layers)
		return -ENOMEM;
	for (; img->nlayers < n; img->nlayers++)
		img->layers[img->nlayers] = cursor_u64(c);
	return 0;
}

int profile_format_head(const struct profile_format *f, const uint8_t *p, struct profile_image *img)
{
	struct cursor c = cursor_over(p, f->head);
	uint64_t bits;
	double precision;
	int r;

	*img = (struct profile_image){ 0 };
	if (hash_checksum(p, f->head) != f->head_sum)
		return -EUCLEAN;
	img->key = cursor_u64(&c);
	img->starts = take_count(&c);
	img->score.judged = take_count(&c);
	bits = cursor_u64(&c);
	memcpy(&precision, &bits, sizeof(precision));
	img->score.precision = precision >= 0 && precision <= 1 ? precision : 0;
	img->last_seen = (int64_t)cursor_u64(&c);
	r = take_layers(&c, img);
	if (r < 0)
		return r;
	img->label = take_text(&c);
	return c.bad ? -EUCLEAN : img->label ? 0 : -ENOMEM;
}

static bool has_layer(const struct profile_stack *s, uint64_t key)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->layers[i] == key)
			return true;
	return false;
}

/* The files that count, and in *ret_index where each of the n is now. */
static int take_files(struct cursor *c, uint32_t n, const struct profile_stack *borrower,
		      struct profile_image *img, uint32_t **ret_index)
{
	if (n > PROFILE_ITEMS_MAX || n > cursor_left(c) / PROFILE_FORMAT_FILE_BYTES)
		return -EUCLEAN;
	*ret_index = calloc(n + 1, sizeof(**ret_index));
	img->files = calloc(n + 1, sizeof(*img->files));
	if (!*ret_index || !img->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t layer = cursor_u64(c);
		const uint16_t len = cursor_u16(c);
		const uint8_t *p = cursor_bytes(c, len);

		(*ret_index)[i] = LEFT_OUT;
		if (!p || memchr(p, 0, len) || !path_is_plain((const char *)p, len) ||
		    (borrower && !has_layer(borrower, layer)))
			continue;
		img->files[img->nfiles] =
			(struct profile_file){ strndup((const char *)p, len), layer };
		if (!img->files[img->nfiles].path)
			return -ENOMEM;
		(*ret_index)[i] = (uint32_t)img->nfiles++;
	}
	return c->bad ? -EUCLEAN : 0;
}

static void take_item(struct cursor *c, const uint32_t *index, uint32_t nfiles,
		      struct profile_image *img)
{
	const uint32_t file = cursor_u32(c);
	const uint32_t extent = cursor_u32(c);
	const uint8_t kind = cursor_u8(c);
	const int64_t last_seen = (int64_t)cursor_u64(c);
	struct predictor_item history;

	history.seen = cursor_u64(c);
	history.count = cursor_u32(c);
	history.first_ms = cursor_u32(c);
	history.order = cursor_u32(c);

	if (file >= nfiles || index[file] == LEFT_OUT || extent >= EXTENTS_MAX ||
	    kind >= PROFILE_KINDS)
		return;
	img->items[img->nitems++] = (struct profile_item){
		.file = index[file],
		.extent = extent,
		.kind = (enum profile_kind)kind,
		.last_seen = last_seen,
		.history = history,
	};
}

int profile_format_body(const struct profile_format *f, const uint8_t *p,
			const struct profile_stack *borrower, struct profile_image *img)
{
	struct cursor c = cursor_over(p, f->body);
	const uint32_t nfiles = cursor_u32(&c), nitems = cursor_u32(&c);
	_cleanup_(freep) uint32_t *index = NULL;
	int r;

	if (hash_checksum(p, f->body) != f->body_sum)
		return -EUCLEAN;
	r = take_files(&c, nfiles, borrower, img, &index);
	if (r < 0)
		return r;
	if (nitems > PROFILE_ITEMS_MAX || nitems > cursor_left(&c) / PROFILE_FORMAT_ITEM_BYTES)
		return -EUCLEAN;
	img->items = calloc(nitems + 1, sizeof(*img->items));
	if (!img->items)
		return -ENOMEM;
	for (uint32_t i = 0; i < nitems; i++)
		take_item(&c, index, nfiles, img);
	return 0;
}
