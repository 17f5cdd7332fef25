// SPDX-License-Identifier: Apache-2.0
/* The first thread that asks makes an object and publishes it with one compare-and-swap; a second
 * thread throws its own copy away. (The source of a file that may be remote is made by one thread
 * at a time, as it opens the file: source.c.) Invariants:
 * 1. a published object never changes and is freed only with the image;
 * 2. an entry's layers[] have a directory, or a regular file, of that name where the parent is;
 *    they ascend, and no layer between them hides it. The first of them is `layer`. A directory's
 *    image_dir has the layers that are really merged, once an opaque mark or a redirect has been
 *    seen;
 * 3. a path is the entry's own in every layer, but for entries that a redirect above brought in
 *    from elsewhere;
 * 4. no lock, so a slow layer delays only users of that very directory;
 * 5. an image that calls itself current has watched every object before it read it. That is a
 *    directory before it is listed or its attributes are read, and a file of several names before
 *    its attributes are. The watch on their directory sees other files. Static layers count as
 *    unchanged. */
#include "image-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/singleflight.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/snapshot_ino.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum { PLAINNESS_UNKNOWN, PLAINNESS_PLAIN, PLAINNESS_HAS_ATTRIBUTES };

#define PROTECTION_KNOWN 0x80

#define METACOPY_BLOCKS_MAX 16 /* limit of attributes' memory */

static void note_layer(struct image *img, size_t i)
{
	struct layer *l = img->layers[i];

	watch_dir(image_watch(img, i), l->rootfd);
	/* Assume a map where that cannot be told. */
	img->has_map[i] = faccessat(l->rootfd, MAPFILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
			  errno != ENOENT;
	/* A map changes by stores into a mapping, which nobody is told of. */
	if (img->has_map[i] && !l->is_frozen)
		watch_spoil(img->watch);
}

/* Snapshots come last, and the root has the number of the topmost layer that is none, so that
 * taking one changes no number. */
static void number(struct image *img)
{
	const struct layer *top = NULL;

	for (unsigned pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < img->n; i++)
			if (img->layers[i]->is_snapshot == pass) {
				xino_index(&img->devs, img->layers[i]->dev);
				top = top ?: img->layers[i];
			}
	img->root.ino = image_fold_ino(img, top, 0, top->ino);
}

/* Takes watch over. */
static int make_image(struct layer *const *layers, size_t n, struct watch *watch,
		      struct image **ret)
{
	struct image *img;

	img = n > 0 && n <= UINT16_MAX ? calloc(1, sizeof(*img)) : NULL;
	if (!img) {
		watch_free(watch);
		return n > 0 && n <= UINT16_MAX ? -ENOMEM : -EINVAL;
	}
	img->refs = 1;
	img->watch = watch;
	img->bytes = sizeof(*img) +
		     n * (sizeof(*img->layers) + sizeof(*img->has_map) + sizeof(*img->root_layers));
	xino_init(&img->devs);
	xino_init(&img->inner_mounts);
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
	img->root = (struct image_entry){
		.name = "",
		.layers = img->root_layers,
		.nlayers = (uint16_t)n,
		.type = DT_DIR,
		.d_ino = layers[0]->ino,
		.is_watched = true,
	};
	number(img);
	*ret = img;
	return 0;
}

int image_new(struct layer *const *layers, size_t n, struct image **ret)
{
	return make_image(layers, n, NULL, ret);
}

int image_new_watched(struct layer *const *layers, size_t n, struct image **ret)
{
	struct watch *watch = NULL;

	watch_new(&watch); /* without, the image is not current */
	return make_image(layers, n, watch, ret);
}

bool image_is_current(const struct image *img)
{
	return watch_is_current(img->watch);
}

void image_spoil(struct image *img)
{
	watch_spoil(img->watch);
}

size_t image_bytes(const struct image *img)
{
	return atomic_load_explicit(&img->bytes, memory_order_relaxed);
}

struct image *image_ref(struct image *img)
{
	img->refs++;
	return img;
}

void image_free_entry(struct image_entry *e)
{
	image_free_dir(e->dir);
	e->dir = NULL;
	free(e->st);
	free(e->target);
	source_free(e->src);
}

/* Depth is bounded by PATH_MAX / 2 in practice, but a hostile layer may nest deeper: walk with a
 * pointer to the parent instead of recursing. */
static void free_tree(struct image_entry *root)
{
	struct image_entry *e = root;

	while (e) {
		struct image_dir *d = e->dir;

		if (d && d->n) {
			struct image_entry *child = &d->ents[--d->n];

			e = child;
			continue;
		}
		image_free_entry(e);
		e = e->parent;
	}
}

static void free_hidden(struct image *img)
{
	for (struct image_hidden *h = img->hidden, *next; h; h = next) {
		next = h->next;
		image_free_entry(&h->e);
		free(h->layers);
		free(h);
	}
}

void image_unref(struct image *img)
{
	if (!img || --img->refs)
		return;
	free_hidden(img);
	free_tree(&img->root);
	for (size_t i = 0; i < img->n; i++)
		layer_unref(img->layers[i]);
	free(img->layers);
	free(img->has_map);
	free(img->root_layers);
	watch_free(img->watch);
	xino_release(&img->devs);
	xino_release(&img->inner_mounts);
	free(img);
}

static void close_entry(struct image_entry *e)
{
	source_close(e->src);
	image_close_dir(e->dir);
}

/* The entry that comes after e when children come before their siblings. */
static struct image_entry *next_entry(struct image_entry *e)
{
	struct image_dir *d = e->dir;

	if (d && d->n)
		return d->ents;
	for (; e->parent; e = e->parent) {
		d = e->parent->dir;
		if (e + 1 < d->ents + d->n)
			return e + 1;
	}
	return NULL;
}

void image_close(struct image *img)
{
	for (struct image_entry *e = &img->root; e; e = next_entry(e))
		close_entry(e);
	for (struct image_hidden *h = img->hidden; h; h = h->next)
		source_close(h->e.src);
}

struct image_entry *image_root(struct image *img)
{
	return &img->root;
}

size_t image_layers(const struct image *img, struct layer *const **ret)
{
	*ret = img->layers;
	return img->n;
}

uint64_t image_fold_ino(struct image *img, const struct layer *l, uint64_t mount, ino_t ino)
{
	/* From the end, as each mount goes on behind the layers' with its own. */
	int i = mount ? XINO_MAX - 1 - (int)xino_index(&img->inner_mounts, mount)
		      : xino_find(&img->devs, l->dev);

	return xino_fold(i < 0 ? XINO_MAX : (unsigned)i, ino);
}

struct xino *image_inner_mounts(struct image *img)
{
	return &img->inner_mounts;
}

/* The index, among the directories that are merged into the parent of e, of the one that has it. */
static size_t place_in_parent(const struct image_entry *e, const struct image_dir *d)
{
	size_t i = 0;

	while (image_merged_layer(e->parent, d, i) != e->layer)
		i++;
	return i;
}

/* The mount inside its layer that e is in; 0: none but its layer's. */
static uint64_t inner_mount(const struct image_entry *e)
{
	const struct image_dir *d = e->parent ? e->parent->dir : NULL;

	return d && d->mounts ? d->mounts[place_in_parent(e, d)] : 0;
}

/* The number a partial file of a layer had before it became one. A copy of another file has its
 * own. */
static uint64_t bottom_ino(struct image *img, struct image_entry *e)
{
	struct snapshot_ino s;
	struct source *src;

	if (e->type != DT_REG || !img->has_map[e->layer] || image_source(img, e, &src) < 0 ||
	    source_is_plain(src))
		return 0;
	while (!source_is_plain(src) && !src->is_copy)
		src = src->below;
	return snapshot_ino_of_source(img, src, &s) ? image_fold_ino(img, s.layer, s.mount, s.ino)
						    : 0;
}

/* Of a layer in two parts the upper one. */
static size_t whole_layer(const struct image *img, const struct image_entry *e)
{
	return e->layer - img->layers[e->layer]->is_rest;
}

int image_is_same_file(struct image *img, struct image_entry *a, struct image_entry *b)
{
	struct stat x, y;
	int r;

	if (a == b)
		return 1;
	if (whole_layer(img, a) != whole_layer(img, b) || a->d_ino != b->d_ino ||
	    a->type != b->type)
		return 0;
	if (inner_mount(a) != inner_mount(b))
		return 0;
	r = image_stat(img, a, &x) ?: image_stat(img, b, &y);
	return r < 0 ? r : x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static uint64_t ino_of_snapshot(struct image *img, struct image_entry *e)
{
	_cleanup_(freep) char *path = img->layers[e->layer]->is_snapshot ? image_layer_path(e)
									 : NULL;

	struct snapshot_ino s;

	return path && snapshot_ino_find(img, e->layer, path, &s)
		       ? image_fold_ino(img, s.layer, s.mount, s.ino)
		       : 0;
}

uint64_t image_ino(struct image *img, struct image_entry *e)
{
	uint64_t ino = atomic_load_explicit(&e->ino, memory_order_relaxed);

	if (!ino) {
		ino = ino_of_snapshot(img, e);
		ino = ino ?: bottom_ino(img, e);
		/* A mount point has the number that listings give: the covered directory's. */
		if (!ino)
			ino = image_fold_ino(img, img->layers[e->layer], inner_mount(e), e->d_ino);
		atomic_store_explicit(&e->ino, ino, memory_order_relaxed);
	}
	return ino;
}

int image_lookup(struct image *img, struct image_entry *dir, const char *name,
		 struct image_entry **ret)
{
	struct image_dir *d;
	int r;

	if (dir->type != DT_DIR)
		return -ENOTDIR;
	r = image_load_dir(img, dir, &d);
	if (r < 0)
		return r;
	if (d->hash) {
		size_t b = hash_key(name, strlen(name), 0) & d->hash_mask;

		for (; d->hash[b]; b = (b + 1) & d->hash_mask) {
			struct image_entry *e = &d->ents[d->hash[b] - 1];

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

int image_lookup_path(struct image *img, const char *path, struct image_entry **ret)
{
	struct image_entry *e = &img->root;

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

/* A pinned descriptor of the layer's directory that holds e: fd_cache_unpin(*ret_slot). */
static int pin_parent(struct image *img, struct image_entry *e, struct fd_cache_slot **ret_slot)
{
	struct image_dir *d = e->parent->dir;
	size_t i = place_in_parent(e, d);
	int fd;

	*ret_slot = &d->fds[i];
	fd = fd_cache_pin(*ret_slot);
	if (fd >= 0)
		return fd;
	fd = image_open_dir(img, e->parent, d, i);
	return fd < 0 ? fd : fd_cache_fill(*ret_slot, fd);
}

/* Attributes of an entry in a layer's directory; it is watched first where the watch on the
 * directory is not enough. */
static int stat_child(struct image *img, struct image_entry *e, int fd, struct stat *st)
{
	struct watch *w = image_watch(img, e->layer);

	/* Before the watch too: so that to find the inode takes no I/O then, with others
	 * waiting. */
	int r = snapshot_links_stat(img->layers[e->layer], fd, e->name, st);

	if (r < 0)
		return r;
	/* Something is mounted there, which may be gone, or another, any time. (Numbers in listings
	 * of FUSE servers often mean nothing.) */
	if (watch_is_current(img->watch) &&
	    (st->st_dev != img->layers[e->layer]->dev ||
	     (st->st_ino != e->d_ino && !img->layers[e->layer]->is_static)))
		watch_spoil(img->watch);
	if (!watch_is_current(w))
		return 0;
	if (e->type == DT_DIR ? atomic_load(&e->is_watched) : st->st_nlink < 2)
		return 0;
	if (e->type == DT_DIR) {
		watch_subdir(w, fd, e->name);
		atomic_store(&e->is_watched, true);
	} else {
		watch_file(w, fd, e->name);
	}
	return snapshot_links_stat(img->layers[e->layer], fd, e->name, st);
}

/* ret_is_merged: more than one layer may have a part in a directory. */
static int stat_entry(struct image *img, struct image_entry *e, struct stat *st,
		      bool *ret_is_merged)
{
	const char *override = img->layers[e->layer]->override;
	struct fd_cache_slot *slot;
	int fd, r;

	*ret_is_merged = e->nlayers > 1;
	if (!e->parent) {
		if (fstat(img->layers[0]->rootfd, st) < 0)
			return -errno;
		mode_xattr_apply(img->layers[0]->rootfd, "", override, st);
		if (img->n > 1 && img->layers[1]->root_mtime.tv_sec)
			st->st_mtim = img->layers[1]->root_mtime;
		return 0;
	}
	fd = pin_parent(img, e, &slot);
	if (fd < 0)
		return fd;
	r = stat_child(img, e, fd, st);
	if (r == 0)
		mode_xattr_apply(fd, e->name, override, st);
	if (r == 0 && e->type == DT_DIR && !*ret_is_merged && e->layer + 1u < img->n)
		*ret_is_merged = whiteout_may_be_redirected(fd, e->name);
	fd_cache_unpin(slot);
	if (r == 0 && IFTODT(st->st_mode) != e->type)
		return -ESTALE;
	return r;
}

/* A file that shows bytes of files below occupies their blocks too. Skip files without a hole, and
 * files with a small one where no partial file can be. */
static void count_blocks_below(struct image *img, struct image_entry *e, struct stat *st)
{
	struct source *src;
	struct stat below;
	int fd;

	if (st->st_size <= st->st_blocks * 512 ||
	    (!img->has_map[e->layer] && st->st_blocks > METACOPY_BLOCKS_MAX) ||
	    e->layer + 1u == img->n || image_source(img, e, &src) < 0)
		return;
	for (; !source_is_plain(src); src = src->below) {
		fd = source_pin(src->below);
		if (fd < 0)
			return;
		if (fstat(fd, &below) == 0 && below.st_blocks > st->st_blocks)
			st->st_blocks = below.st_blocks;
		fd_cache_unpin(&src->below->fd);
	}
}

int image_stat(struct image *img, struct image_entry *e, struct stat *ret)
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
		struct image_dir *d;

		r = image_load_dir(img, e, &d);
		if (r == 0)
			st->st_nlink = 2 + d->nsubdirs;
		/* A fault inside must not hide the directory, nor the rest of the one it is in. */
		if (r == -EUCLEAN)
			r = 0;
	}
	if (r < 0) {
		free(st);
		return r;
	}
	*ret = *st;
	if (atomic_compare_exchange_strong(&e->st, &other, st))
		image_count_bytes(img, sizeof(*st));
	else
		free(st);
	return 0;
}

ssize_t image_count(struct image *img, struct image_entry *dir)
{
	struct image_dir *d;
	int r = image_load_dir(img, dir, &d);

	return r < 0 ? r : (ssize_t)d->n;
}

uint64_t image_lower_places(const struct image_entry *dir)
{
	const struct image_dir *d = dir->dir;

	return d->nlower;
}

uint64_t image_place(const struct image_entry *dir, size_t i)
{
	const struct image_dir *d = dir->dir;

	return d->places ? d->places[i] : i;
}

size_t image_at_place(const struct image_entry *dir, uint64_t place)
{
	const struct image_dir *d = dir->dir;
	size_t low = 0, high = d->n;

	if (!d->places)
		return place < d->n ? (size_t)place : d->n;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (d->places[mid] < place)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct image_entry *image_child(struct image_entry *dir, size_t i)
{
	struct image_dir *d = dir->dir;

	return &d->ents[i];
}

size_t image_index(const struct image_entry *e)
{
	struct image_dir *d = e->parent->dir;

	return (size_t)(e - d->ents);
}

size_t image_subdirs(struct image_entry *dir)
{
	struct image_dir *d = dir->dir;

	return d->nsubdirs;
}

static bool is_below_redirect(const struct image_entry *e)
{
	while ((e = e->parent)) {
		const struct image_dir *d = e->dir;

		if (d->redirected.n)
			return true;
	}
	return false;
}

static int make_source(struct image *img, struct image_entry *e, struct source **ret)
{
	struct source *s, *other = NULL;
	_cleanup_(freep) char *path = image_layer_path(e);
	int r;

	if (!path)
		return -ENOMEM;
	/* Without a redirect the file has that path in all its layers. */
	r = source_new_at(img->layers, img->n, e->layers, is_below_redirect(e) ? 1 : e->nlayers,
			  path, &s);
	if (r < 0)
		return r;
	/* The file below was found through directories that have no watch. (The directories merged
	 * with the entry's are watched.) */
	if (!source_is_plain(s) && s->is_from_elsewhere)
		watch_spoil(img->watch);
	if (atomic_compare_exchange_strong(&e->src, &other, s)) {
		image_count_bytes(img, sizeof(*s) + strlen(path) + 1);
	} else {
		source_free(s);
		s = other;
	}
	*ret = s;
	return 0;
}

static bool may_be_remote(const struct image *img, const struct image_entry *e)
{
	bool is_any = false;

	for (size_t i = 0; i < e->nlayers; i++)
		is_any = is_any || !img->layers[e->layers[i]]->is_mappable;
	return is_any;
}

/* Permission was decided by the attributes that are known of the entry; those of an override are no
 * file's. */
static int check_source(struct image *img, struct image_entry *e, struct source *s)
{
	const struct stat *st = atomic_load_explicit(&e->st, memory_order_acquire);

	return st && !img->layers[e->layer]->override ? source_fits_stat(s, st)
	       : s->is_replaced			      ? -ESTALE
						      : 0;
}

int image_source(struct image *img, struct image_entry *e, struct source **ret)
{
	struct source *s = atomic_load_explicit(&e->src, memory_order_acquire);
	struct singleflight flight;
	bool is_ours = false;
	int r = 0;

	if (!s && may_be_remote(img, e)) {
		is_ours = singleflight_begin(&flight, e);
		s = atomic_load_explicit(&e->src, memory_order_acquire);
	}
	if (!s)
		r = make_source(img, e, &s);
	if (is_ours)
		singleflight_end(&flight);
	if (r == 0)
		r = check_source(img, e, s);
	if (r == 0)
		*ret = s;
	return r;
}

int image_open_path(struct image *img, struct image_entry *e)
{
	struct fd_cache_slot *slot;
	int fd, r;

	if (!e->parent)
		return path_open(img->layers[0]->rootfd, "", O_PATH | O_DIRECTORY, 0);
	fd = pin_parent(img, e, &slot);
	if (fd < 0)
		return fd;
	r = openat(fd, e->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (r < 0)
		r = -errno;
	fd_cache_unpin(slot);
	return r;
}

/* By name, from its directory: nothing is opened. */
static ssize_t list_attributes(struct image *img, struct image_entry *e)
{
	struct fd_cache_slot *slot;
	ssize_t len;
	int fd;

	if (!e->parent)
		return xattr_list(img->layers[0]->rootfd, "", NULL, 0);
	fd = pin_parent(img, e, &slot);
	if (fd < 0)
		return fd;
	len = xattr_list(fd, e->name, NULL, 0);
	fd_cache_unpin(slot);
	return len;
}

bool image_is_plain(struct image *img, struct image_entry *e)
{
	uint8_t known = atomic_load_explicit(&e->plainness, memory_order_relaxed);
	struct source *src = atomic_load_explicit(&e->src, memory_order_acquire);
	ssize_t len;

	if (src)
		return check_source(img, e, src) == 0 && src->is_unresolved;
	if (known == PLAINNESS_UNKNOWN) {
		len = list_attributes(img, e);
		if (len < 0)
			return false;
		known = len == 0 ? PLAINNESS_PLAIN : PLAINNESS_HAS_ATTRIBUTES;
		atomic_store_explicit(&e->plainness, known, memory_order_relaxed);
	}
	return known == PLAINNESS_PLAIN;
}

const char *image_override(const struct image *img, const struct image_entry *e)
{
	return img->layers[e->layer]->override;
}

int image_protection_at(int dirfd, const char *name)
{
	struct statx st;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE,
		  &st) < 0)
		return -errno;
	return (st.stx_attributes & STATX_ATTR_IMMUTABLE ? IMAGE_IMMUTABLE : 0) |
	       (st.stx_attributes & STATX_ATTR_APPEND ? IMAGE_APPEND_ONLY : 0) |
	       (st.stx_attributes & STATX_ATTR_NODUMP ? IMAGE_NODUMP : 0);
}

int image_protection(struct image *img, struct image_entry *e)
{
	int known = atomic_load_explicit(&e->protection, memory_order_relaxed), fd, r;
	struct fd_cache_slot *slot = NULL;

	if (known)
		return known & ~PROTECTION_KNOWN;
	fd = e->parent ? pin_parent(img, e, &slot) : img->layers[0]->rootfd;
	if (fd < 0)
		return fd;
	r = image_protection_at(fd, e->parent ? e->name : "");
	if (slot)
		fd_cache_unpin(slot);
	if (r >= 0 && e->type == DT_DIR)
		atomic_store_explicit(&e->protection, (uint8_t)(r | PROTECTION_KNOWN),
				      memory_order_relaxed);
	return r;
}

static char *read_target(struct image *img, struct image_entry *e, ssize_t *ret_len)
{
	_cleanup_(closep) int fd = image_open_path(img, e);
	char target[PATH_MAX + 1], *copy;

	*ret_len = fd < 0 ? fd : readlinkat(fd, "", target, sizeof(target) - 1);
	if (fd >= 0 && *ret_len < 0)
		*ret_len = -errno;
	if (*ret_len < 0)
		return NULL;
	copy = strndup(target, (size_t)*ret_len);
	if (!copy)
		*ret_len = -ENOMEM;
	return copy;
}

ssize_t image_readlink(struct image *img, struct image_entry *e, char *buf, size_t size)
{
	char *target = atomic_load_explicit(&e->target, memory_order_acquire), *other = NULL;
	ssize_t len;

	if (!target) {
		target = read_target(img, e, &len);
		if (!target)
			return len;
		if (atomic_compare_exchange_strong(&e->target, &other, target)) {
			image_count_bytes(img, (size_t)len + 1);
		} else {
			free(target);
			target = other;
		}
	}
	len = (ssize_t)strnlen(target, size);
	memcpy(buf, target, (size_t)len);
	return len;
}
