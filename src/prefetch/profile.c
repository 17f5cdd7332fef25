// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/profile.h"

#include "profile_dir.h"
#include "profile_format.h"
#include "profile_merge.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/minmax.h"
#include "veneer/prefetch/planner.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

uint64_t profile_layer_key(dev_t dev, ino_t ino, int64_t btime_s, int64_t btime_ns)
{
	const uint64_t words[] = { dev, ino, (uint64_t)btime_s, (uint64_t)btime_ns };

	return hash_checksum(words, sizeof(words));
}

uint64_t profile_image_key(const struct profile_stack *s)
{
	const uint64_t key = hash_checksum(s->layers, s->n * sizeof(*s->layers));

	return key ? key : 1;
}

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

/* r, with its sentence. */
static int fail(int r, uint64_t key, char *err, size_t err_size)
{
	char name[PROFILE_DIR_NAME_SIZE];

	profile_dir_name(key, name);
	snprintf(err, err_size, "%s: %s", r == -EBUSY || !key ? PROFILE_LOCK : name,
		 r == -EUCLEAN	? "it is damaged"
		 : r == -EPROTO ? "it is of a newer version"
		 : r == -EFBIG	? "it is far too large"
		 : r == -EBUSY	? "somebody has it locked"
		 : r == -EROFS	? "it cannot be written"
				: strerror(-r));
	return r;
}

/* ---- reading ---- */

static size_t shared_layers(const struct profile_stack *s, const struct profile_image *img)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < img->nlayers; k++)
			if (s->layers[i] == img->layers[k]) {
				n++;
				break;
			}
	return n;
}

/* The key of the image that shares most layers, of equal ones the last started; 0: none does. */
static int find_relative(int dirfd, const struct profile_stack *s, uint64_t *ret)
{
	_cleanup_(freep) struct profile_dir_file *all = NULL;
	size_t n, most = 0;
	int64_t latest = 0;
	int r = profile_dir_list(dirfd, &all, &n);

	*ret = 0;
	for (size_t i = 0; i < n; i++) {
		_cleanup_(profile_image_release) struct profile_image img = { 0 };
		const size_t shared = profile_dir_read(dirfd, all[i].key, false, NULL, &img) < 0
					      ? 0
					      : shared_layers(s, &img);

		if (!shared || shared < most || (shared == most && img.last_seen <= latest))
			continue;
		most = shared;
		latest = img.last_seen;
		*ret = all[i].key;
	}
	return r;
}

int profile_load(int dirfd, const struct profile_stack *s, struct profile_image *ret, char *err,
		 size_t err_size)
{
	uint64_t key = profile_image_key(s);
	int r = profile_dir_read(dirfd, key, true, NULL, ret);

	if (r == -ENOENT) {
		r = find_relative(dirfd, s, &key);
		/* One that is damaged lends nothing. */
		if (r == 0 && key && profile_dir_read(dirfd, key, true, s, ret) < 0)
			profile_image_release(ret);
		ret->is_borrowed = ret->starts > 0;
	}
	if (r < 0) {
		profile_image_release(ret);
		return fail(r, key, err, err_size);
	}
	return 0;
}

static int by_last_start(const void *a, const void *b)
{
	const struct profile_image *x = a, *y = b;

	return COMPARE(y->last_seen, x->last_seen) ?: COMPARE(x->key, y->key);
}

/* Of all sound ones, what list shows. *ret_r is the first error, with its sentence. */
static struct profile_image *read_heads(int dirfd, size_t *ret_n, int *ret_r, char *err,
					size_t err_size)
{
	_cleanup_(freep) struct profile_dir_file *all = NULL;
	struct profile_image *heads;
	size_t n;

	*ret_n = 0;
	*ret_r = profile_dir_list(dirfd, &all, &n);
	heads = calloc(n + 1, sizeof(*heads));
	if (!heads)
		*ret_r = -ENOMEM;
	if (*ret_r < 0)
		fail(*ret_r, 0, err, err_size);
	for (size_t i = 0; heads && i < n; i++) {
		int r = profile_dir_read(dirfd, all[i].key, false, NULL, &heads[*ret_n]);

		if (r == 0)
			++*ret_n;
		else
			profile_image_release(&heads[*ret_n]);
		if (r < 0 && r != -ENOENT && *ret_r == 0)
			*ret_r = fail(r, all[i].key, err, err_size);
	}
	if (heads)
		qsort(heads, *ret_n, sizeof(*heads), by_last_start);
	return heads;
}

int profile_each(int dirfd, bool wants_items, int (*fn)(const struct profile_image *img, void *arg),
		 void *arg, char *err, size_t err_size)
{
	size_t n;
	int r, said = 0;
	_cleanup_(freep) struct profile_image *heads = read_heads(dirfd, &n, &r, err, err_size);

	for (size_t i = 0; i < n; i++) {
		_cleanup_(profile_image_release) struct profile_image head = heads[i], img = { 0 };
		int one = said || !wants_items
				  ? 0
				  : profile_dir_read(dirfd, head.key, true, NULL, &img);

		if (one == 0 && said == 0)
			said = fn(wants_items ? &img : &head, arg);
		else if (one < 0 && one != -ENOENT && r == 0)
			r = fail(one, head.key, err, err_size);
	}
	return said ?: r;
}

/* ---- writing ---- */

/* Under the lock. */
static int replace(int dirfd, const struct profile_image *img, const struct profile_start *start)
{
	struct profile_image merged;
	struct buf bytes = { 0 };
	int r = profile_merge(img, start, &merged);

	r = r ?: profile_format_encode(&merged, &bytes);
	r = r ?: profile_dir_write(dirfd, img->key, &bytes);
	profile_merge_release(&merged);
	buf_release(&bytes);
	profile_dir_sweep(dirfd, img->key);
	return r;
}

int profile_store(int dirfd, const struct profile_stack *s, const struct profile_start *start,
		  char *err, size_t err_size)
{
	_cleanup_(profile_image_release) struct profile_image known = { 0 };
	_cleanup_(closep) int lock = profile_dir_lock(dirfd);
	const uint64_t key = profile_image_key(s);
	struct profile_image img;
	int r = lock;

	if (r < 0)
		return fail(r, 0, err, err_size);
	r = profile_dir_read(dirfd, key, true, NULL, &known);
	if (r < 0 && r != -ENOENT)
		return fail(r, key, err, err_size);
	img = known;
	if (img.starts == INT_MAX)
		img.starts = 0;
	if (start->is_judged)
		planner_score(&img.score, start->precision, img.starts);
	img.key = key;
	img.last_seen = start->at;
	img.label = (char *)s->label;
	img.layers = (uint64_t *)s->layers;
	img.nlayers = s->n;
	r = replace(dirfd, &img, start);
	return r < 0 ? fail(r, key, err, err_size) : 0;
}

int profile_put(int dirfd, const struct profile_image *img, char *err, size_t err_size)
{
	_cleanup_(closep) int lock = profile_dir_lock(dirfd);
	int r = lock < 0 ? lock : replace(dirfd, img, NULL);

	return r < 0 ? fail(r, lock < 0 ? 0 : img->key, err, err_size) : 0;
}

static int forget_all(int dirfd)
{
	_cleanup_(freep) struct profile_dir_file *all = NULL;
	char name[PROFILE_DIR_NAME_SIZE];
	size_t n;
	int r = profile_dir_list(dirfd, &all, &n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		profile_dir_name(all[i].key, name);
		if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
			r = -errno;
	}
	return r;
}

int profile_forget(int dirfd, uint64_t key, char *err, size_t err_size)
{
	_cleanup_(closep) int lock = profile_dir_lock(dirfd);
	char name[PROFILE_DIR_NAME_SIZE];
	int r = lock < 0 ? lock : 0;

	profile_dir_name(key, name);
	if (r == 0 && key)
		r = unlinkat(dirfd, name, 0) < 0 ? -errno : 0;
	else if (r == 0)
		r = forget_all(dirfd);
	return r < 0 && r != -ENOENT ? fail(r, lock < 0 ? 0 : key, err, err_size) : r;
}
