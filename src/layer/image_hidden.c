// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/image_hidden.h"

#include "image-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/layer/dir_listing.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

/* The meaning of the name in the directory of one layer. */
struct image_hidden_place {
	uint16_t layer;
	bool hides, is_there;
	uint8_t type;
	uint64_t ino;
};

static void look(const struct dir_listing *l, const char *name, struct image_hidden_place *ret)
{
	for (size_t k = 0; k < l->n; k++) {
		const struct dir_listing_entry *e = &l->entries[k];

		if (strcmp(dir_listing_name(l, e), name) != 0)
			continue;
		ret->hides |= e->is_hiding || e->is_whiteout;
		ret->is_there |= !e->is_hiding && !e->is_whiteout;
		if (!e->is_hiding) {
			ret->type = e->type;
			ret->ino = e->ino;
		}
	}
	/* A layer that hides the name hides its own, too (dir_merge_add). */
	ret->is_there &= !ret->hides;
}

static int read_place(struct image *img, struct image_entry *dir, const struct image_dir *d,
		      size_t i, const char *name, struct image_hidden_place *ret)
{
	const uint16_t layer = image_merged_layer(dir, d, i);
	_cleanup_(closep) int fd = image_open_dir(img, dir, d, i);
	_cleanup_(dir_listing_release) struct dir_listing l = { 0 };
	char redirect[PATH_MAX];
	bool has_files = false;
	int r = fd < 0 ? fd : dir_listing_read(fd, &l);

	*ret = (struct image_hidden_place){ .layer = layer };
	if (r == 0)
		r = whiteout_dir_marks(fd, img->layers[layer]->is_doubted, redirect, &has_files);
	if (r < 0)
		return r;
	if (has_files)
		dir_listing_note_files(&l, fd);
	look(&l, name, ret);
	return 0;
}

static void free_one(struct image_hidden *h)
{
	if (h)
		free(h->layers);
	free(h);
}

/* The file that is seen in these places. */
static struct image_hidden *make(struct image_entry *dir, const char *name,
				 const struct image_hidden_place *p, size_t n)
{
	const size_t size = strlen(name) + 1;
	struct image_hidden *h = calloc(1, sizeof(*h) + size);

	if (!h || !(h->layers = calloc(n, sizeof(*h->layers)))) {
		free(h);
		return NULL;
	}
	memcpy(h->name, name, size);
	for (size_t k = 0; k < n && !p[k].hides; k++) {
		if (!p[k].is_there)
			continue;
		if (p[k].type != p[0].type)
			break;
		h->layers[h->e.nlayers++] = p[k].layer;
		/* Of files that are not regular the topmost is all there is. */
		if (p[0].type != DT_REG)
			break;
	}
	h->e.parent = dir;
	h->e.name = h->name;
	h->e.layers = h->layers;
	h->e.layer = p[0].layer;
	h->e.type = p[0].type;
	h->e.d_ino = p[0].ino;
	return h;
}

static void enter(struct image *img, struct image_hidden *h)
{
	h->next = atomic_load(&img->hidden);
	while (!atomic_compare_exchange_weak(&img->hidden, &h->next, h))
		;
}

static int find(struct image *img, struct image_entry *dir, const char *name, uint8_t type,
		uint64_t ino, struct image_entry **ret)
{
	_cleanup_(freep) struct image_hidden_place *p = NULL;
	struct image_dir *d;
	int r = image_load_dir(img, dir, &d);

	if (r < 0)
		return r;
	p = calloc(d->nmerged + 1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < d->nmerged && r == 0; i++)
		r = read_place(img, dir, d, i, name, &p[i]);
	for (size_t i = 1; i < d->nmerged && r == 0; i++) {
		struct image_hidden *h;

		if (!p[i].is_there || p[i].type != type || type == DT_DIR)
			continue;
		h = make(dir, name, p + i, d->nmerged - i);
		if (!h)
			return -ENOMEM;
		if (image_ino(img, &h->e) == ino) {
			enter(img, h);
			*ret = &h->e;
			return 0;
		}
		image_free_entry(&h->e);
		free_one(h);
	}
	return r < 0 ? r : -ENOENT;
}

int image_hidden_dir(struct image *img, const char *path, struct image_entry **ret)
{
	const char *slash = strrchr(path, '/');
	_cleanup_(freep) char *above = strndup(path, slash ? (size_t)(slash - path) : 0);
	int r;

	if (!above)
		return -ENOMEM;
	*ret = image_root(img);
	r = *above ? image_lookup_path(img, above, ret) : 0;
	return r == -ENOTDIR ? -ENOENT : r;
}

int image_hidden_find(struct image *img, const char *path, uint8_t type, uint64_t ino,
		      struct image_entry **ret)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct image_entry *dir;
	int r = image_hidden_dir(img, path, &dir);

	if (r < 0)
		return r;
	return dir->type == DT_DIR ? find(img, dir, name, type, ino, ret) : -ENOENT;
}
