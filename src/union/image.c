// SPDX-License-Identifier: Apache-2.0
/* Everything here is made by the first thread that asks and published with one compare-and-swap; a
 * thread that comes second throws its own copy away. Invariants:
 * 1. what is published never changes and is freed only with the image;
 * 2. an entry's layers[] are those that have a directory of that name where the parent is, ascending; the
 *    first of them is `layer`. What is really merged, once an opaque mark or a redirect has been seen, is
 *    said by its idir;
 * 3. a path is the entry's own in every layer, but for what a redirect above it brought in from elsewhere;
 * 4. no lock, so a slow layer delays only those who ask for that very directory. */
#include "veneer/image.h"

#include "veneer/cleanup.h"
#include "veneer/hash.h"
#include "veneer/log.h"
#include "veneer/merge.h"
#include "veneer/override.h"
#include "veneer/path.h"
#include "veneer/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define IMAGE_DEVS_MAX 255	/* told apart in st_ino */
#define METACOPY_BLOCKS_MAX 16	/* what attributes may take */
#define DIR_SCAN_MAX 8	/* below this many children a scan beats a hash */

struct idir {
	size_t n, nsubdirs;
	bool has_mounts;	/* one of the layers' directories is on another device than its layer */
	struct ient *ents;
	uint32_t *hash;		/* open addressing, index + 1; NULL for small directories */
	size_t hash_mask;
	char *names;
	uint16_t *layers;	/* storage of all children's layers[] */

	/* What is merged into the directory itself. */
	size_t nmerged;
	struct walk_list redirected; /* with a redirect: these, and where they are */
	struct fdslot *fds;	/* nmerged */
};

static uint16_t merged_layer(const struct ient *e, const struct idir *d, size_t i)
{
	return d->redirected.n ? d->redirected.layers[i] : e->layers[i];
}

struct image {
	_Atomic unsigned refs;
	size_t n;
	struct layer **layers;
	bool *has_map;		/* per layer: it was an upper once, and may hold partial files */
	pthread_mutex_t devs_lock;	/* taken to add one; innermost */
	dev_t devs[IMAGE_DEVS_MAX];	/* never changed below ndevs */
	_Atomic unsigned ndevs;
	uint16_t *root_layers;
	struct ient root;
};

static void note_layer(struct image *img, size_t i)
{
	struct layer *l = img->layers[i];

	img->has_map[i] = faccessat(l->rootfd, MAPFILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	image_fold_ino(img, l->dev, 0);
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
	pthread_mutex_init(&img->devs_lock, NULL);
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

static void free_fds(struct idir *d)
{
	for (size_t i = 0; d->fds && i < d->nmerged; i++)
		fdcache_drop(&d->fds[i]);
	free(d->fds);
}

static void free_dir(struct idir *d)
{
	if (!d)
		return;
	free_fds(d);
	walk_list_release(&d->redirected);
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
		free_dir(d);
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
	pthread_mutex_destroy(&img->devs_lock);
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

/* base, and the names from below top (NULL: the root) down to e. */
static char *join_path(const char *base, const struct ient *top, const struct ient *e)
{
	size_t len = strlen(base);
	char *path, *p;

	for (const struct ient *i = e; i->parent && i != top; i = i->parent)
		len += strlen(i->name) + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	p = path + len;
	*p = '\0';
	for (const struct ient *i = e; i->parent && i != top; i = i->parent) {
		size_t n = strlen(i->name);

		p -= n;
		memcpy(p, i->name, n);
		*--p = '/';
	}
	memcpy(path, base, strlen(base));
	if (*path == '/')
		memmove(path, path + 1, len);
	return path;
}

char *image_path(const struct ient *e)
{
	return join_path("", NULL, e);
}

/* Where a directory is in a layer that a redirect brought in; NULL: where it stands. */
static const char *redirected_path(const struct idir *d, uint16_t layer)
{
	size_t low = 0, high = d ? d->redirected.n : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (d->redirected.layers[mid] == layer)
			return d->redirected.paths[mid];
		if (d->redirected.layers[mid] < layer)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* Where e is in a layer that has it. */
static char *path_in_layer(const struct ient *e, uint16_t layer)
{
	const struct ient *top = e->parent;
	const char *base = NULL;

	while (top) {
		base = redirected_path(top->dir, layer);
		if (base)
			break;
		top = top->parent;
	}
	return join_path(base ? base : "", top, e);
}

char *image_layer_path(const struct ient *e)
{
	return path_in_layer(e, e->layer);
}

static unsigned find_dev(struct image *img, dev_t dev, unsigned from)
{
	while (from < img->ndevs && img->devs[from] != dev)
		from++;
	return from;
}

uint64_t image_fold_ino(struct image *img, dev_t dev, ino_t ino)
{
	unsigned i = find_dev(img, dev, 0);

	if (i == img->ndevs) {
		LOCK_SCOPE(&img->devs_lock);
		i = find_dev(img, dev, i);
		if (i == img->ndevs && i < IMAGE_DEVS_MAX) {
			img->devs[i] = dev;
			img->ndevs = i + 1;
		}
	}
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

	if (e->type != DT_REG || !img->has_map[e->layer] || image_source(img, e, &src) < 0 || source_is_plain(src))
		return 0;
	while (!source_is_plain(src))
		src = src->below;
	fd = source_pin(src);
	if (fd < 0)
		return 0;
	r = fstat(fd, &st);
	fdcache_unpin(&src->fd);
	return r < 0 ? 0 : image_fold_ino(img, st.st_dev, st.st_ino);
}

/* Below a mount point inside a layer numbers are another device's. The mount point itself keeps the number that
 * listings give: that of the directory it covers. */
static uint64_t own_ino(struct image *img, struct ient *e)
{
	struct idir *d = e->parent ? e->parent->dir : NULL;
	struct stat st;

	if (d && d->has_mounts && image_stat(img, e, &st) == 0 && st.st_dev != img->layers[e->layer]->dev &&
	    st.st_ino == e->d_ino)
		return image_fold_ino(img, st.st_dev, st.st_ino);
	return image_fold_ino(img, img->layers[e->layer]->dev, e->d_ino);
}

bool image_is_same_file(struct image *img, struct ient *a, struct ient *b)
{
	struct stat x, y;

	return a == b || (a->layer == b->layer && a->d_ino == b->d_ino && a->type == b->type &&
			  image_stat(img, a, &x) == 0 && image_stat(img, b, &y) == 0 && x.st_dev == y.st_dev &&
			  x.st_ino == y.st_ino);
}

uint64_t image_ino(struct image *img, struct ient *e)
{
	uint64_t ino = atomic_load_explicit(&e->ino, memory_order_relaxed);

	if (!ino) {
		ino = bottom_ino(img, e);
		if (!ino)
			ino = own_ino(img, e);
		atomic_store_explicit(&e->ino, ino, memory_order_relaxed);
	}
	return ino;
}

/* ---- loading a directory ---- */

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

/* The directory of entry e in the i-th layer that is merged. */
static int open_layer_dir(struct image *img, struct ient *e, const struct idir *d, size_t i)
{
	uint16_t layer = merged_layer(e, d, i);
	_cleanup_(freep) char *own = d->redirected.n ? NULL : path_in_layer(e, layer);
	const char *path = d->redirected.n ? d->redirected.paths[i] : own;
	int rootfd = img->layers[layer]->rootfd;
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

/* Enum whiteout_dir of the i-th layer's directory, or -errno. */
static int merge_layer_dir(struct image *img, struct ient *e, struct idir *d, size_t i, struct merge *m)
{
	char redirect[PATH_MAX];
	struct listing l;
	struct stat st;
	int fd = open_layer_dir(img, e, d, i), r, kind = WHITEOUT_DIR_MERGED;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && st.st_dev != img->layers[merged_layer(e, d, i)]->dev)
		d->has_mounts = true;
	r = listing_read(fd, &l);
	if (r == 0)
		r = merge_add(m, &l, merged_layer(e, d, i));
	/* The root cannot be opaque. The last layer is asked too: it may be another union's, redirected. */
	if (r == 0 && e->parent)
		kind = whiteout_dir_kind(fd, redirect);
	if (kind >= 0 && l.is_opaque)
		kind = WHITEOUT_DIR_OPAQUE;
	listing_release(&l);
	if (r == 0 && kind >= 0) {
		fdcache_fill(&d->fds[i], fd);
		fdcache_unpin(&d->fds[i]);
		return kind;
	}
	close(fd);
	return r < 0 ? r : kind;
}

/* From the i-th layer on something else is merged than what stands at the directory's own place. */
static int follow_redirect(struct image *img, struct ient *e, struct idir *d, size_t i)
{
	_cleanup_(walk_list_release) struct walk_list all = { 0 }, below = { 0 };
	_cleanup_(freep) char *path = path_in_layer(e, e->layers[i]);
	size_t n = i;
	int r;

	if (!path)
		return -ENOMEM;
	r = walk_directories(img->layers, img->n, e->layers[i], path, &below);
	if (r < 0)
		return r == -ENAMETOOLONG ? -EUCLEAN : r;
	n += below.n;
	all.layers = calloc(n, sizeof(*all.layers));
	all.paths = calloc(n, sizeof(*all.paths));
	if (!all.layers || !all.paths)
		return -ENOMEM;
	for (; all.n < i; all.n++) {
		all.layers[all.n] = e->layers[all.n];
		all.paths[all.n] = path_in_layer(e, e->layers[all.n]);
		if (!all.paths[all.n])
			return -ENOMEM;
	}
	for (; all.n < n; all.n++) {
		all.layers[all.n] = below.layers[all.n - i];
		all.paths[all.n] = steal_ptr(&below.paths[all.n - i]);
	}
	free_fds(d);
	d->nmerged = n;
	d->fds = calloc(n, sizeof(*d->fds));
	d->redirected = all;
	all = (struct walk_list){ 0 };
	return d->fds ? 0 : -ENOMEM;
}

static int merge_layers(struct image *img, struct ient *e, struct idir *d, struct merge *m)
{
	for (size_t i = 0; i < d->nmerged; i++) {
		int r = merge_layer_dir(img, e, d, i, m);

		/* The walk has followed those further down. */
		if (r == WHITEOUT_DIR_REDIRECTED && !d->redirected.n) {
			r = follow_redirect(img, e, d, i);
			if (r < 0)
				return r;
		} else if (r == WHITEOUT_DIR_OPAQUE) {
			for (size_t k = i + 1; k < d->nmerged; k++)
				fdcache_drop(&d->fds[k]);
			d->nmerged = i + 1;
		} else if (r < 0) {
			log_error("%s: cannot read directory %s/%s: %s", img->layers[merged_layer(e, d, i)]->path,
				  e->parent ? e->parent->name : "", e->name,
				  r == -EUCLEAN ? "its redirect is no path" : strerror(-r));
			return r;
		}
	}
	return 0;
}

static int read_dir(struct image *img, struct ient *e, struct idir *d)
{
	struct merge m;
	int r;

	d->nmerged = e->nlayers;
	d->fds = calloc(d->nmerged, sizeof(*d->fds));
	if (!d->fds)
		return -ENOMEM;
	merge_init(&m);
	r = merge_layers(img, e, d, &m);
	if (r == 0)
		r = finish_dir(e, &m, d);
	merge_release(&m);
	return r;
}

static int load_dir(struct image *img, struct ient *e, struct idir **ret)
{
	struct idir *d = atomic_load_explicit(&e->dir, memory_order_acquire), *other = NULL;
	int r;

	if (d) {
		*ret = d;
		return 0;
	}
	if (atomic_load_explicit(&e->is_damaged, memory_order_relaxed))
		return -EUCLEAN;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	r = read_dir(img, e, d);
	if (r == -EUCLEAN)
		atomic_store_explicit(&e->is_damaged, true, memory_order_relaxed);
	if (r < 0) {
		free_dir(d);
		return r;
	}
	if (!atomic_compare_exchange_strong(&e->dir, &other, d)) {
		free_dir(d);
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

	while (merged_layer(e->parent, d, i) != e->layer)
		i++;
	*ret_slot = &d->fds[i];
	fd = fdcache_pin(*ret_slot);
	if (fd >= 0)
		return fd;
	fd = open_layer_dir(img, e->parent, d, i);
	return fd < 0 ? fd : fdcache_fill(*ret_slot, fd);
}

/* ret_is_merged: more than one layer may have a part in a directory. */
static int stat_entry(struct image *img, struct ient *e, struct stat *st, bool *ret_is_merged)
{
	const char *override = img->layers[e->layer]->override;
	struct fdslot *slot;
	int fd, r;

	*ret_is_merged = e->nlayers > 1;
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
	if (r == 0 && e->type == DT_DIR && !*ret_is_merged && e->layer + 1u < img->n)
		*ret_is_merged = whiteout_may_be_redirected(fd, e->name);
	fdcache_unpin(slot);
	if (r == 0 && IFTODT(st->st_mode) != e->type)
		return -ESTALE;
	return r;
}

/* A file that shows bytes of those below occupies what they do. What is no hole at all, or hardly one and not
 * where such files can be, is not asked. */
static void count_blocks_below(struct image *img, struct ient *e, struct stat *st)
{
	struct source *src;
	struct stat below;
	int fd;

	if (st->st_size <= st->st_blocks * 512 || (!img->has_map[e->layer] && st->st_blocks > METACOPY_BLOCKS_MAX) ||
	    e->layer + 1u == img->n || image_source(img, e, &src) < 0)
		return;
	for (; !source_is_plain(src); src = src->below) {
		fd = source_pin(src->below);
		if (fd < 0)
			return;
		if (fstat(fd, &below) == 0 && below.st_blocks > st->st_blocks)
			st->st_blocks = below.st_blocks;
		fdcache_unpin(&src->below->fd);
	}
}

int image_stat(struct image *img, struct ient *e, struct stat *ret)
{
	struct stat *st = atomic_load_explicit(&e->st, memory_order_acquire), *other = NULL;
	bool is_merged;
	int r;

	if (st) {
		*ret = *st;
		return 0;
	}
	st = malloc(sizeof(*st));
	if (!st)
		return -ENOMEM;
	r = stat_entry(img, e, st, &is_merged);
	if (r == 0 && e->type == DT_REG)
		count_blocks_below(img, e, st);
	if (r == 0 && e->type == DT_DIR && is_merged) {
		struct idir *d;

		r = load_dir(img, e, &d);
		if (r == 0)
			st->st_nlink = 2 + d->nsubdirs;
		/* What is wrong inside must not hide the directory, nor the rest of the one it is in. */
		if (r == -EUCLEAN)
			r = 0;
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
	path = image_layer_path(e);
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
