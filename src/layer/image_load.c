// SPDX-License-Identifier: Apache-2.0
#include "image-internal.h"

#include "dir_merge.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/log.h"
#include "veneer/sys/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define DIR_SCAN_MAX 8 /* below this many children a scan beats a hash */

void image_close_dir(struct image_dir *d)
{
	for (size_t i = 0; d && d->fds && i < d->nmerged; i++)
		fd_cache_drop(&d->fds[i]);
}

void image_free_dir(struct image_dir *d)
{
	if (!d)
		return;
	image_close_dir(d);
	free(d->fds);
	free(d->mounts);
	path_resolve_list_release(&d->redirected);
	free(d->ents);
	free(d->hash);
	free(d->places);
	free(d->names);
	free(d->layers);
	free(d);
}

static void hash_children(struct image_dir *d)
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

static int keep_places(struct image_dir *d, struct draft *const *v, size_t n)
{
	d->places = calloc(n ? n : 1, sizeof(*d->places));
	if (!d->places)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		d->places[k] = v[k]->place;
	return 0;
}

static void keep_child(struct image_dir *d, const struct draft *i, struct image_entry *dir,
		       char **names, uint16_t **layers)
{
	struct image_entry *e = &d->ents[d->n++];
	size_t len = strlen(i->name) + 1;

	e->parent = dir;
	e->name = memcpy(*names, i->name, len);
	e->layers = memcpy(*layers, i->layers, i->nlayers * sizeof(**layers));
	e->nlayers = (uint16_t)i->nlayers;
	e->layer = i->layers[0];
	e->type = i->type;
	e->d_ino = i->ino;
	*names += len;
	*layers += i->nlayers;
	d->nsubdirs += i->type == DT_DIR;
}

/* The merged children as they are kept. */
static int finish_dir(struct image_entry *dir, struct dir_merge *m, struct image_dir *d)
{
	size_t n, nlayers = 0, names_len = 0;
	_cleanup_(freep) struct draft **v = NULL;
	uint16_t *layers;
	char *names;
	int r = dir_merge_order(m, &v, &n, &d->nlower);

	if (r == 0 && m->lower)
		r = keep_places(d, v, n);
	if (r < 0)
		return r;
	for (size_t k = 0; k < n; k++) {
		nlayers += v[k]->nlayers;
		names_len += strlen(v[k]->name) + 1;
	}
	d->ents = calloc(n ? n : 1, sizeof(*d->ents));
	d->layers = layers = calloc(nlayers ? nlayers : 1, sizeof(*layers));
	d->names = names = malloc(names_len ? names_len : 1);
	if (!d->ents || !layers || !names)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		keep_child(d, v[k], dir, &names, &layers);
	hash_children(d);
	return 0;
}

/* Through a mount point nothing is sure to be there tomorrow. */
static int open_dir(struct image *img, int rootfd, const char *path, int flags)
{
	if (watch_is_current(img->watch)) {
		int fd = path_open_unmounted(rootfd, path, flags);

		if (fd != -EXDEV && fd != -ENOSYS)
			return fd;
		watch_spoil(img->watch);
	}
	return path_open(rootfd, path, flags, 0);
}

/* Permission to search the directory was decided by the attributes that are known of it. Another
 * one with other attributes is not searched. */
static int check_dir(struct image *img, struct image_entry *e, uint16_t layer, int fd)
{
	const struct stat *known = atomic_load_explicit(&e->st, memory_order_acquire);
	struct stat st;

	int r = 0;

	if (fd < 0 || !known || layer != e->layer || img->layers[layer]->override)
		return fd;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if ((st.st_dev != known->st_dev || st.st_ino != known->st_ino) &&
		 (st.st_uid != known->st_uid || st.st_gid != known->st_gid ||
		  st.st_mode != known->st_mode))
		r = -ESTALE;
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

int image_open_dir(struct image *img, struct image_entry *e, const struct image_dir *d, size_t i)
{
	uint16_t layer = image_merged_layer(e, d, i);
	_cleanup_(freep) char *own = d->redirected.n ? NULL : image_path_in_layer(e, layer);
	const char *path = d->redirected.n ? d->redirected.paths[i] : own;
	int rootfd = img->layers[layer]->rootfd;
	int fd = -ENOMEM;

	for (int attempt = 0; path && attempt < 2; attempt++) {
		fd = open_dir(img, rootfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME);
		if (fd == -EPERM)
			fd = open_dir(img, rootfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		if (fd != -EMFILE && fd != -ENFILE)
			break;
		fd_cache_shrink();
	}
	return check_dir(img, e, layer, fd);
}

/* A bind mount shows files with the device and the numbers of its source, but has copies of its own
 * above. */
static int note_mount(struct image *img, struct image_entry *e, struct image_dir *d, size_t i,
		      int fd)
{
	uint64_t mount;
	ino_t ino;
	int r = layer_inner_mount(img->layers[image_merged_layer(e, d, i)], fd, &mount, &ino);

	if (r < 0 || !mount)
		return r;
	watch_spoil(img->watch);
	if (!d->mounts)
		d->mounts = calloc(d->nmerged, sizeof(*d->mounts));
	if (!d->mounts)
		return -ENOMEM;
	d->mounts[i] = mount;
	return 0;
}

/* Enum whiteout_dir of the i-th layer's directory, or -errno. */
static int merge_layer_dir(struct image *img, struct image_entry *e, struct image_dir *d, size_t i,
			   struct dir_merge *m)
{
	char redirect[PATH_MAX];
	struct dir_listing l = { 0 };
	int fd = image_open_dir(img, e, d, i), r, kind = WHITEOUT_DIR_MERGED;
	bool has_files = false;

	if (fd < 0)
		return fd;
	if (i > 0 || !atomic_load(&e->is_watched))
		watch_dir(image_watch(img, image_merged_layer(e, d, i)), fd);
	r = note_mount(img, e, d, i, fd);
	if (r == 0)
		r = dir_listing_read(fd, &l);
	/* The last layer is asked too: it may be another union's, redirected. */
	if (r == 0)
		kind = whiteout_dir_marks(fd, img->layers[image_merged_layer(e, d, i)]->is_doubted,
					  redirect, &has_files);
	/* The root cannot be opaque. */
	if (!e->parent)
		kind = WHITEOUT_DIR_MERGED;
	if (r == 0 && has_files)
		dir_listing_note_files(&l, fd);
	m->is_snapshot = img->layers[image_merged_layer(e, d, i)]->is_snapshot;
	if (r == 0)
		r = dir_merge_add(m, &l, image_merged_layer(e, d, i));
	if (r == 0 && m->lower && !img->layers[image_merged_layer(e, d, i)]->is_snapshot)
		r = dir_merge_add(m->lower, &l, image_merged_layer(e, d, i));
	if (kind >= 0 && l.is_opaque)
		kind = WHITEOUT_DIR_OPAQUE;
	dir_listing_release(&l);
	if (r == 0 && kind >= 0) {
		fd_cache_fill(&d->fds[i], fd);
		fd_cache_unpin(&d->fds[i]);
		return kind;
	}
	close(fd);
	return r < 0 ? r : kind;
}

/* From the i-th layer on the merged directory is not the one at the directory's own place. */
static int follow_redirect(struct image *img, struct image_entry *e, struct image_dir *d, size_t i)
{
	_cleanup_(path_resolve_list_release) struct path_resolve_list all = { 0 }, below = { 0 };
	_cleanup_(freep) char *path = image_path_in_layer(e, e->layers[i]);
	uint64_t *mounts = NULL;
	size_t n = i;
	int r;

	if (!path)
		return -ENOMEM;
	/* The walk goes through directories that nobody watches. */
	watch_spoil(img->watch);
	r = path_resolve_directories(img->layers, img->n, e->layers[i], path, &below);
	if (r < 0)
		return r == -ENAMETOOLONG ? -EUCLEAN : r;
	n += below.n;
	all.layers = calloc(n, sizeof(*all.layers));
	all.paths = calloc(n, sizeof(*all.paths));
	if (!all.layers || !all.paths)
		return -ENOMEM;
	for (; all.n < i; all.n++) {
		all.layers[all.n] = e->layers[all.n];
		all.paths[all.n] = image_path_in_layer(e, e->layers[all.n]);
		if (!all.paths[all.n])
			return -ENOMEM;
	}
	for (; all.n < n; all.n++) {
		all.layers[all.n] = below.layers[all.n - i];
		all.paths[all.n] = steal_ptr(&below.paths[all.n - i]);
	}
	if (d->mounts) {
		mounts = calloc(n, sizeof(*mounts));
		if (!mounts)
			return -ENOMEM;
		memcpy(mounts, d->mounts, i * sizeof(*mounts));
	}
	image_close_dir(d);
	free(d->fds);
	free(d->mounts);
	d->mounts = mounts;
	d->nmerged = n;
	d->fds = calloc(n, sizeof(*d->fds));
	d->redirected = all;
	all = (struct path_resolve_list){ 0 };
	return d->fds ? 0 : -ENOMEM;
}

static void end_at(struct image_dir *d, size_t end)
{
	for (size_t k = end; k < d->nmerged; k++)
		fd_cache_drop(&d->fds[k]);
	d->nmerged = end;
}

static int merge_layers(struct image *img, struct image_entry *e, struct image_dir *d,
			struct dir_merge *m)
{
	for (size_t i = 0; i < d->nmerged; i++) {
		int r = merge_layer_dir(img, e, d, i, m);

		/* The walk has followed those further down. */
		if (r == WHITEOUT_DIR_REDIRECTED && !d->redirected.n) {
			r = follow_redirect(img, e, d, i);
			if (r < 0)
				return r;
		} else if (r == WHITEOUT_DIR_OPAQUE) {
			end_at(d, !e->parent ? layer_below(img->layers, img->n, i) : i + 1);
		} else if (r < 0) {
			log_error("%s: cannot read directory %s/%s: %s",
				  img->layers[image_merged_layer(e, d, i)]->path,
				  e->parent ? e->parent->name : "", e->name,
				  r == -EUCLEAN ? "its redirect is no path, or its owner could "
						  "have forged it"
						: strerror(-r));
			return r;
		}
	}
	return 0;
}

static size_t dir_bytes(const struct image_dir *d)
{
	const struct image_entry *last = d->n ? &d->ents[d->n - 1] : NULL;
	size_t bytes = sizeof(*d) + d->n * sizeof(*d->ents) +
		       d->nmerged * (sizeof(*d->fds) + (d->mounts ? sizeof(*d->mounts) : 0));

	/* Names and layers lie one behind the other. */
	if (last)
		bytes += (size_t)(last->name - d->names) + strlen(last->name) + 1 +
			 (size_t)((const char *)(last->layers + last->nlayers) -
				  (const char *)d->layers);
	if (d->places)
		bytes += d->n * sizeof(*d->places);
	return bytes + (d->hash ? (d->hash_mask + 1) * sizeof(*d->hash) : 0);
}

static bool has_snapshot(const struct image *img, const struct image_entry *e)
{
	for (size_t i = 0; i < e->nlayers; i++)
		if (img->layers[e->layers[i]]->is_snapshot)
			return true;
	return false;
}

static int read_dir(struct image *img, struct image_entry *e, struct image_dir *d)
{
	struct dir_merge m, lower;
	int r;

	d->nmerged = e->nlayers;
	d->fds = calloc(d->nmerged, sizeof(*d->fds));
	if (!d->fds)
		return -ENOMEM;
	dir_merge_init(&m);
	dir_merge_init(&lower);
	if (has_snapshot(img, e))
		m.lower = &lower;
	r = merge_layers(img, e, d, &m);
	if (r == 0)
		r = finish_dir(e, &m, d);
	dir_merge_release(&m);
	dir_merge_release(&lower);
	return r;
}

int image_load_dir(struct image *img, struct image_entry *e, struct image_dir **ret)
{
	struct image_dir *d = atomic_load_explicit(&e->dir, memory_order_acquire), *other = NULL;
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
		image_free_dir(d);
		return r;
	}
	if (atomic_compare_exchange_strong(&e->dir, &other, d)) {
		image_count_bytes(img, dir_bytes(d));
	} else {
		image_free_dir(d);
		d = other;
	}
	*ret = d;
	return 0;
}
