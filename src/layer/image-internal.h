/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an image: image.c asks, image_load.c reads directories. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/layer/path_resolve.h"
#include "veneer/layer/xino.h"
#include "veneer/sys/watch.h"

struct image_dir {
	size_t n, nsubdirs, nlower;
	uint32_t *places; /* image_place of each, ascending; NULL: its index */
	struct image_entry *ents;
	uint32_t *hash; /* open addressing, index + 1; NULL for small directories */
	size_t hash_mask;
	char *names;
	uint16_t *layers; /* storage of all children's layers[] */

	/* directories merged into this one */
	size_t nmerged;
	struct path_resolve_list redirected; /* with a redirect: these, and where they are */
	struct fd_cache_slot *fds; /* nmerged */
	uint64_t *mounts; /* nmerged: which mount inside its layer each is in, 0 none
			     (layer_inner_mount); NULL: all none */
};

/* A file that is in no listing (image_hidden.h). */
struct image_hidden {
	struct image_hidden *next;
	struct image_entry e;
	uint16_t *layers;
	char name[];
};

struct image {
	_Atomic unsigned refs;
	size_t n;
	struct layer **layers;
	bool *has_map; /* per layer: it was an upper once, and may hold partial files */
	struct watch *watch; /* the objects read, if a user wants to know whether they have changed;
				or NULL */
	_Atomic size_t bytes;
	struct xino devs; /* the layers', in their order */
	struct xino inner_mounts; /* inside layers, of any device; numbered from the end */
	uint16_t *root_layers;
	struct image_entry root;
	_Atomic(struct image_hidden *) hidden; /* that were asked for (image_hidden.h) */
};

/* Index of the layer whose directory is the i-th that is merged into e. */
static inline uint16_t image_merged_layer(const struct image_entry *e, const struct image_dir *d,
					  size_t i)
{
	return d->redirected.n ? d->redirected.layers[i] : e->layers[i];
}

/* The watch that hears when an object that was read of a layer changes; NULL: none. Watching a
 * remote file system may wait for it while others wait for the watcher, and would not tell of
 * remote changes. */
static inline struct watch *image_watch(const struct image *img, size_t layer)
{
	return img->layers[layer]->is_static ? NULL : img->watch;
}

static inline void image_count_bytes(struct image *img, size_t n)
{
	atomic_fetch_add_explicit(&img->bytes, n, memory_order_relaxed);
}

/* The kept part of an entry. */
void image_free_entry(struct image_entry *e);

/* The children of a directory, read at the first call. 0, -EUCLEAN, -errno. */
int image_load_dir(struct image *img, struct image_entry *e, struct image_dir **ret);
/* NULL is ignored. close: its descriptors only. */
void image_free_dir(struct image_dir *d);
void image_close_dir(struct image_dir *d);
/* A new descriptor of the directory of entry e in the i-th layer that is merged. */
int image_open_dir(struct image *img, struct image_entry *e, const struct image_dir *d, size_t i);
