// SPDX-License-Identifier: Apache-2.0
/* Everything here is made by the first thread that asks and published with one compare-and-swap; a
 * thread that comes second throws its own copy away. Invariants:
 * 1. what is published never changes and is freed only with the image;
 * 2. an entry's layers[] are those whose directory of that name is merged, ascending; the first of
 *    them is `layer`;
 * 3. no lock, so a slow layer delays only those who ask for that very directory. */
#include "veneer/image.h"

#include "veneer/cleanup.h"
#include "veneer/hash.h"
#include "veneer/htab.h"
#include "veneer/listing.h"
#include "veneer/log.h"
#include "veneer/override.h"
#include "veneer/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define IMAGE_DEVS_MAX 255	/* told apart in st_ino */
#define DIR_SCAN_MAX 8	/* below this many children a scan beats a hash */

struct idir {
	size_t n, nsubdirs;
	struct ient *ents;
	uint32_t *hash;		/* open addressing, index + 1; NULL for small directories */
	size_t hash_mask;
	char *names;
	uint16_t *layers;	/* storage of all children's layers[] */
	struct fdslot *fds;	/* one per contributing layer of the directory itself */
};

struct image {
	_Atomic unsigned refs;
	size_t n;
	struct layer **layers;
	bool *has_map;		/* per layer: it was an upper once, and may hold partial files */
	dev_t devs[IMAGE_DEVS_MAX];
	unsigned ndevs;
	uint16_t *root_layers;
	struct ient root;
};

static void note_layer(struct image *img, size_t i)
{
	struct layer *l = img->layers[i];
	unsigned d = 0;

	img->has_map[i] = faccessat(l->rootfd, MAPFILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	while (d < img->ndevs && img->devs[d] != l->dev)
		d++;
	if (d == img->ndevs && d < IMAGE_DEVS_MAX)
		img->devs[img->ndevs++] = l->dev;
}

int image_new(struct layer *const *layers, size_t n, struct image **ret)
{
	struct image *img;

	if (n == 0 || n > UINT16_MAX)
		return -EINVAL;
	img = calloc(1, sizeof(*img));
	if (!img)
		return -ENOMEM;
	img->refs = 1;
	img->layers = calloc(n, sizeof(*img->layers));
	img->has_map = calloc(n, sizeof(*img->has_map));
	img->root_layers = calloc(n, sizeof(*img->root_layers));
	if (!img->layers || !img->has_map || !img->root_layers) {
		image_unref(img);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		img->layers[i] = layer_ref(layers[i]);
		img->n = i + 1;
		note_layer(img, i);
		img->root_layers[i] = (uint16_t)i;
	}
	img->root = (struct ient){
		.name = "", .layers = img->root_layers, .nlayers = (uint16_t)n, .type = DT_DIR, .d_ino = layers[0]->ino,
	};
	*ret = img;
	return 0;
}

struct image *image_ref(struct image *img)
{
	img->refs++;
	return img;
}

static void free_dir(struct idir *d, size_t nfds)
{
	if (!d)
		return;
	for (size_t i = 0; i < nfds; i++)
		fdcache_drop(&d->fds[i]);
	free(d->fds);
	free(d->ents);
	free(d->hash);
	free(d->names);
	free(d->layers);
	free(d);
}

/* Depth is bounded by PATH_MAX / 2 in practice, but a hostile layer may nest deeper: walk with a
 * pointer to the parent instead of recursing. */
static void free_tree(struct ient *root)
{
	struct ient *e = root;

	while (e) {
		struct idir *d = e->dir;

		if (d && d->n) {
			struct ient *child = &d->ents[--d->n];

			e = child;
			continue;
		}
		free_dir(d, e->nlayers);
		e->dir = NULL;
		free(e->st);
		source_free(e->src);
		e = e->parent;
	}
}

void image_unref(struct image *img)
{
	if (!img || --img->refs)
		return;
	free_tree(&img->root);
	for (size_t i = 0; i < img->n; i++)
		layer_unref(img->layers[i]);
	free(img->layers);
	free(img->has_map);
	free(img->root_layers);
	free(img);
}

struct ient *image_root(struct image *img)
{
	return &img->root;
}

size_t image_layers(const struct image *img, struct layer *const **ret)
{
	*ret = img->layers;
	return img->n;
}

char *image_path(const struct ient *e)
{
	size_t len = 0;
	char *path, *p;

	for (const struct ient *i = e; i->parent; i = i->parent)
		len += strlen(i->name) + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	if (!len) {
		*path = '\0';
		return path;
	}
	p = path + len - 1;
	*p = '\0';
	for (const struct ient *i = e; i->parent; i = i->parent) {
		size_t n = strlen(i->name);

		p -= n;
		memcpy(p, i->name, n);
		if (p > path)
			*--p = '/';
	}
	return path;
}

uint64_t image_fold_ino(const struct image *img, dev_t dev, ino_t ino)
{
	unsigned i = 0;

	while (i < img->ndevs && img->devs[i] != dev)
		i++;
	/* One device: the plain number. Otherwise its index in the top byte, which no file system we
	 * know of uses. */
	return i ? ino ^ ((uint64_t)i << 56) : ino;
}

/* The number a partial file of a layer had before it became one. */
static uint64_t bottom_ino(struct image *img, struct ient *e)
{
	struct source *src;
	struct stat st;
	int fd, r;

	if (e->type != DT_REG || !img->has_map[e->layer] || image_source(img, e, &src) < 0 || !src->id)
		return 0;
	while (src->id)
		src = src->below;
	fd = source_pin(src);
	if (fd < 0)
		return 0;
	r = fstat(fd, &st);
	fdcache_unpin(&src->fd);
	/* One of several names was copied up, and is a file of its own since. */
	return r < 0 || st.st_nlink > 1 ? 0 : image_fold_ino(img, st.st_dev, st.st_ino);
}

uint64_t image_ino(struct image *img, struct ient *e)
{
	uint64_t ino = atomic_load_explicit(&e->ino, memory_order_relaxed);

	if (!ino) {
		ino = bottom_ino(img, e);
		if (!ino)
			ino = image_fold_ino(img, img->layers[e->layer]->dev, e->d_ino);
		atomic_store_explicit(&e->ino, ino, memory_order_relaxed);
	}
	return ino;
}

/* ---- loading a directory ---- */

struct draft {			/* a child while its directory is being merged */
	struct hlink link;
	const char *name;
	uint32_t nlayers, cap;
	uint16_t *layers;
	uint8_t type;
	bool is_hidden;		/* a whiteout came before any entry */
	bool is_closed;		/* nothing further down is merged into it */
	uint64_t ino;
	struct draft *next;	/* in order of appearance */
};

struct merge {
	struct htab drafts;
	struct draft *first, **tail;
	size_t n, nsubdirs, nlayers, names_len;
};

static struct draft *find_draft(struct merge *m, const char *name, uint64_t hash)
{
	for (struct hlink *l = htab_first(&m->drafts, hash); l; l = htab_next(l)) {
		struct draft *d = container_of(l, struct draft, link);

		if (!strcmp(d->name, name))
			return d;
	}
	return NULL;
}

static struct draft *add_draft(struct merge *m, const char *name, uint64_t hash)
{
	size_t len = strlen(name) + 1;
	struct draft *d = calloc(1, sizeof(*d) + len);

	if (!d)
		return NULL;
	d->name = memcpy(d + 1, name, len);
	if (htab_insert(&m->drafts, &d->link, hash) < 0) {
		free(d);
		return NULL;
	}
	*m->tail = d;
	m->tail = &d->next;
	return d;
}

static int draft_add_layer(struct draft *d, uint16_t layer)
{
	if (d->nlayers == d->cap) {
		uint32_t cap = d->cap ? d->cap * 2 : 2;
		uint16_t *p = realloc(d->layers, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		d->layers = p;
		d->cap = cap;
	}
	d->layers[d->nlayers++] = layer;
	return 0;
}

static int hide(struct merge *m, const char *name)
{
	uint64_t hash = hash_key(name, strlen(name), 0);
	struct draft *d = find_draft(m, name, hash);

	if (!d) {
		d = add_draft(m, name, hash);
		if (!d)
			return -ENOMEM;
		d->is_hidden = true;
	}
	d->is_closed = true;
	return 0;
}

static int show(struct merge *m, const char *name, const struct listing_entry *e, uint16_t layer)
{
	uint64_t hash = hash_key(name, strlen(name), 0);
	struct draft *d = find_draft(m, name, hash);

	if (!d) {
		d = add_draft(m, name, hash);
		if (!d)
			return -ENOMEM;
		d->type = e->type;
		d->ino = e->ino;
		d->is_closed = e->type != DT_DIR;
		return draft_add_layer(d, layer);
	}
	if (d->is_closed)
		return 0;
	if (e->type != DT_DIR) {
		d->is_closed = true;
		return 0;
	}
	return draft_add_layer(d, layer);
}

/* One layer's listing into the merge: ".wh.NAME" hides NAME in its own layer too, so it goes first; a
 * whiteout device is the entry of that name itself. */
static int merge_listing(struct merge *m, const struct listing *l, uint16_t layer)
{
	for (size_t i = 0; i < l->n; i++) {
		int r = l->entries[i].is_hiding ? hide(m, listing_name(l, &l->entries[i])) : 0;

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < l->n; i++) {
		const struct listing_entry *e = &l->entries[i];
		int r = 0;

		if (e->is_whiteout)
			r = hide(m, listing_name(l, e));
		else if (!e->is_hiding)
			r = show(m, listing_name(l, e), e, layer);
		if (r < 0)
			return r;
	}
	return 0;
}

static void free_draft(struct hlink *l, void *arg)
{
	struct draft *d = container_of(l, struct draft, link);

	(void)arg;
	free(d->layers);
	free(d);
}

static void merge_release(struct merge *m)
{
	htab_drain(&m->drafts, free_draft, NULL);
	htab_release(&m->drafts);
}

static void hash_children(struct idir *d)
{
	size_t size = 16;

	if (d->n <= DIR_SCAN_MAX)
		return;
	while (size < d->n * 2)
		size *= 2;
	d->hash = calloc(size, sizeof(*d->hash));
	if (!d->hash)
		return; /* a scan finds them too */
	d->hash_mask = size - 1;
	for (size_t i = 0; i < d->n; i++) {
		const char *name = d->ents[i].name;
		size_t b = hash_key(name, strlen(name), 0) & d->hash_mask;

		while (d->hash[b])
			b = (b + 1) & d->hash_mask;
		d->hash[b] = (uint32_t)i + 1;
	}
}

/* The merged children as they are kept. */
static int finish_dir(struct ient *dir, struct merge *m, struct idir *d)
{
	size_t n = 0, nlayers = 0, names_len = 0;
	uint16_t *layers;
	char *names;

	for (struct draft *i = m->first; i; i = i->next) {
		if (i->is_hidden)
			continue;
		n++;
		nlayers += i->nlayers;
		names_len += strlen(i->name) + 1;
	}
	d->ents = calloc(n ? n : 1, sizeof(*d->ents));
	d->layers = layers = calloc(nlayers ? nlayers : 1, sizeof(*layers));
	d->names = names = malloc(names_len ? names_len : 1);
	if (!d->ents || !layers || !names)
		return -ENOMEM;
	for (struct draft *i = m->first; i; i = i->next) {
		struct ient *e = &d->ents[d->n];
		size_t len = strlen(i->name) + 1;

		if (i->is_hidden)
			continue;
		e->parent = dir;
		e->name = memcpy(names, i->name, len);
		e->layers = memcpy(layers, i->layers, i->nlayers * sizeof(*layers));
		e->nlayers = (uint16_t)i->nlayers;
		e->layer = i->layers[0];
		e->type = i->type;
		e->d_ino = i->ino;
		names += len;
		layers += i->nlayers;
		d->nsubdirs += i->type == DT_DIR;
		d->n++;
	}
	hash_children(d);
	return 0;
}

/* The directory of entry e in its i-th contributing layer. */
static int open_layer_dir(struct image *img, struct ient *e, size_t i)
{
	_cleanup_(freep) char *path = image_path(e);
	int rootfd = img->layers[e->layers[i]]->rootfd;
	int fd = -ENOMEM;

	for (int attempt = 0; path && attempt < 2; attempt++) {
		fd = path_open(rootfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME, 0);
		if (fd == -EPERM)
			fd = path_open(rootfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
		if (fd != -EMFILE && fd != -ENFILE)
			break;
		fdcache_shrink();
	}
	return fd;
}

static int merge_layer_dir(struct image *img, struct ient *e, size_t i, struct merge *m, struct fdslot *slot)
{
	struct listing l;
	int fd = open_layer_dir(img, e, i);
	char redirect[PATH_MAX];
	int r, opaque = 0;

	if (fd < 0)
		return fd;
	r = listing_read(fd, &l);
	if (r == 0)
		r = merge_listing(m, &l, e->layers[i]);
	/* The root cannot be opaque. The last layer is asked too: it may be another union's, redirected. */
	if (r == 0 && e->parent)
		opaque = whiteout_dir_kind(fd, redirect);
	if (opaque == WHITEOUT_DIR_REDIRECTED)
		opaque = -EUCLEAN;
	if (opaque >= 0 && l.is_opaque)
		opaque = 1;
	listing_release(&l);
	if (r == 0 && opaque >= 0) {
		fdcache_fill(slot, fd);
		fdcache_unpin(slot);
		return opaque;
	}
	close(fd);
	return r < 0 ? r : opaque;
}

static int load_dir(struct image *img, struct ient *e, struct idir **ret)
{
	struct merge m = { .tail = &m.first };
	struct idir *d = atomic_load_explicit(&e->dir, memory_order_acquire), *other = NULL;
	int r = 0;

	if (d) {
		*ret = d;
		return 0;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->fds = calloc(e->nlayers, sizeof(*d->fds));
	if (!d->fds)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < e->nlayers; i++) {
		r = merge_layer_dir(img, e, i, &m, &d->fds[i]);
		if (r < 0)
			log_error("%s: cannot read directory %s/%s: %s", img->layers[e->layers[i]]->path,
				  e->parent ? e->parent->name : "", e->name, strerror(-r));
	}
	if (r >= 0)
		r = finish_dir(e, &m, d);
	merge_release(&m);
	if (r < 0) {
		free_dir(d, d->fds ? e->nlayers : 0);
		return r;
	}
	if (!atomic_compare_exchange_strong(&e->dir, &other, d)) {
		free_dir(d, e->nlayers);
		d = other;
	}
	*ret = d;
	return 0;
}

/* ---- asking ---- */

int image_lookup(struct image *img, struct ient *dir, const char *name, struct ient **ret)
{
	struct idir *d;
	int r;

	if (dir->type != DT_DIR)
		return -ENOTDIR;
	r = load_dir(img, dir, &d);
	if (r < 0)
		return r;
	if (d->hash) {
		size_t b = hash_key(name, strlen(name), 0) & d->hash_mask;

		for (; d->hash[b]; b = (b + 1) & d->hash_mask) {
			struct ient *e = &d->ents[d->hash[b] - 1];

			if (!strcmp(e->name, name)) {
				*ret = e;
				return 0;
			}
		}
		return -ENOENT;
	}
	for (size_t i = 0; i < d->n; i++)
		if (!strcmp(d->ents[i].name, name)) {
			*ret = &d->ents[i];
			return 0;
		}
	return -ENOENT;
}

int image_lookup_path(struct image *img, const char *path, struct ient **ret)
{
	struct ient *e = &img->root;

	if (!path_is_plain(path, strlen(path)))
		return -ENOENT;
	while (*path) {
		char name[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		int r;

		memcpy(name, path, len);
		name[len] = '\0';
		r = image_lookup(img, e, name, &e);
		if (r < 0)
			return r;
		path += len + (path[len] == '/');
	}
	*ret = e;
	return 0;
}

/* A pinned descriptor of the layer's directory that holds e: fdcache_unpin(*ret_slot). */
static int pin_parent(struct image *img, struct ient *e, struct fdslot **ret_slot)
{
	struct idir *d = e->parent->dir;
	size_t i = 0;
	int fd;

	while (e->parent->layers[i] != e->layer)
		i++;
	*ret_slot = &d->fds[i];
	fd = fdcache_pin(*ret_slot);
	if (fd >= 0)
		return fd;
	fd = open_layer_dir(img, e->parent, i);
	return fd < 0 ? fd : fdcache_fill(*ret_slot, fd);
}

static int stat_entry(struct image *img, struct ient *e, struct stat *st)
{
	const char *override = img->layers[e->layer]->override;
	struct fdslot *slot;
	int fd, r;

	if (!e->parent) {
		if (fstat(img->layers[0]->rootfd, st) < 0)
			return -errno;
		override_apply(img->layers[0]->rootfd, "", override, st);
		return 0;
	}
	fd = pin_parent(img, e, &slot);
	if (fd < 0)
		return fd;
	r = fstatat(fd, e->name, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	if (r == 0)
		override_apply(fd, e->name, override, st);
	fdcache_unpin(slot);
	if (r == 0 && IFTODT(st->st_mode) != e->type)
		return -ESTALE;
	return r;
}

int image_stat(struct image *img, struct ient *e, struct stat *ret)
{
	struct stat *st = atomic_load_explicit(&e->st, memory_order_acquire), *other = NULL;
	int r;

	if (st) {
		*ret = *st;
		return 0;
	}
	st = malloc(sizeof(*st));
	if (!st)
		return -ENOMEM;
	r = stat_entry(img, e, st);
	if (r == 0 && e->type == DT_DIR && e->nlayers > 1) {
		struct idir *d;

		r = load_dir(img, e, &d);
		if (r == 0)
			st->st_nlink = 2 + d->nsubdirs;
	}
	if (r < 0) {
		free(st);
		return r;
	}
	*ret = *st;
	if (!atomic_compare_exchange_strong(&e->st, &other, st))
		free(st);
	return 0;
}

ssize_t image_count(struct image *img, struct ient *dir)
{
	struct idir *d;
	int r = load_dir(img, dir, &d);

	return r < 0 ? r : (ssize_t)d->n;
}

struct ient *image_child(struct ient *dir, size_t i)
{
	struct idir *d = dir->dir;

	return &d->ents[i];
}

size_t image_index(const struct ient *e)
{
	struct idir *d = e->parent->dir;

	return (size_t)(e - d->ents);
}

size_t image_subdirs(struct ient *dir)
{
	struct idir *d = dir->dir;

	return d->nsubdirs;
}

int image_source(struct image *img, struct ient *e, struct source **ret)
{
	struct source *s = atomic_load_explicit(&e->src, memory_order_acquire), *other = NULL;
	_cleanup_(freep) char *path = NULL;
	int r;

	if (s) {
		*ret = s;
		return 0;
	}
	path = image_path(e);
	if (!path)
		return -ENOMEM;
	r = source_new(img->layers, img->n, e->layer, path, &s, NULL);
	if (r < 0)
		return r;
	if (!atomic_compare_exchange_strong(&e->src, &other, s)) {
		source_free(s);
		s = other;
	}
	*ret = s;
	return 0;
}

int image_open_path(struct image *img, struct ient *e)
{
	struct fdslot *slot;
	int fd, r;

	if (!e->parent)
		return path_open(img->layers[0]->rootfd, "", O_PATH | O_DIRECTORY, 0);
	fd = pin_parent(img, e, &slot);
	if (fd < 0)
		return fd;
	r = openat(fd, e->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (r < 0)
		r = -errno;
	fdcache_unpin(slot);
	return r;
}
