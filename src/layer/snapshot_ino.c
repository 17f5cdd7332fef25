// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/snapshot_ino.h"

#include "image-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <string.h>

/* Where an object is. */
struct spot {
	size_t idx;
	char path[PATH_MAX];
	size_t top; /* its path in the tree of layers[top..) is wanted, too */
	char at_top[PATH_MAX];
};

/* The first of layers[from..n) that has something at spot->path, which must be of that kind. 0;
 * -ENOENT; -errno. */
static int find_below(struct image *img, size_t from, enum path_resolve_kind kind,
		      struct spot *spot)
{
	for (size_t k = from; k < img->n; k = layer_below(img->layers, img->n, k)) {
		struct path_resolve_step step;
		int r;

		if (k == spot->top)
			strcpy(spot->at_top, spot->path);
		r = path_resolve_visit_parts(img->layers, img->n, &k, spot->path, &step);
		if (r < 0)
			return r;
		if (step.kind == kind) {
			spot->idx = k;
			return 0;
		}
		if (step.kind != PATH_RESOLVE_ABSENT || !step.has_below)
			return -ENOENT;
		strcpy(spot->path, step.path);
	}
	return -ENOENT;
}

/* The directory that is merged with this one. */
static int below_directory(struct image *img, struct spot *spot)
{
	struct path_resolve_step step;
	int r = path_resolve_visit(img->layers[spot->idx], spot->path, &step);

	if (r < 0 || !step.has_below)
		return r < 0 ? r : -ENOENT;
	strcpy(spot->path, step.path);
	return find_below(img, layer_below(img->layers, img->n, spot->idx), PATH_RESOLVE_DIRECTORY,
			  spot);
}

/* The origin of a whole copy. */
static int below_copy(struct image *img, int fd, bool is_regular, struct spot *spot)
{
	char origin[PATH_MAX];
	int r = origin_xattr_read(fd, "", img->layers[spot->idx]->is_doubted, origin);

	if (r != 1)
		return r < 0 ? r : -ENOENT;
	strcpy(spot->path, origin);
	return find_below(img, layer_below(img->layers, img->n, spot->idx),
			  is_regular ? PATH_RESOLVE_REGULAR : PATH_RESOLVE_OTHER, spot);
}

static size_t index_of(const struct image *img, const struct layer *l)
{
	size_t k = 0;

	while (k < img->n && img->layers[k] != l)
		k++;
	return k;
}

/* s is the last part of a file that is not in layers[top..), and stands over one that is. */
static int note_top(struct image *img, struct source *s, struct spot *spot)
{
	int r = source_path_below(s, spot->at_top);

	return r
		       ?: path_resolve_descend(img->layers, index_of(img, s->layer) + 1, spot->top,
					       spot->at_top);
}

/* The bottom of the chain of a partial file, which ends at a copy of another file. */
static int below_partial(struct image *img, struct spot *spot)
{
	struct source *top, *s;
	int r = source_new(img->layers, img->n, spot->idx, spot->path, &top, NULL);
	size_t idx = spot->idx;

	if (r < 0)
		return r;
	for (s = top; s->below && !s->is_copy && r == 0; s = s->below) {
		const size_t next = index_of(img, s->below->layer);

		if (idx < spot->top && next >= spot->top)
			r = note_top(img, s, spot);
		idx = next;
	}
	r = r ?: s == top ? -ENOENT : 0;
	if (r == 0) {
		spot->idx = idx;
		strcpy(spot->path, s->path);
	}
	source_free(top);
	return r;
}

/* 0: spot is its origin further down; -ENOENT: it has none. */
static int step_down(struct image *img, int fd, mode_t mode, struct spot *spot)
{
	int r;

	if (S_ISDIR(mode))
		return below_directory(img, spot);
	r = S_ISREG(mode) && img->has_map[spot->idx] ? below_partial(img, spot) : -ENOENT;
	return r == -ENOENT ? below_copy(img, fd, S_ISREG(mode), spot) : r;
}

/* Move *spot down to the object that gives the number. 0 or -errno. */
static int go_down(struct image *img, struct spot *spot, struct snapshot_ino *ret)
{
	/* Each step goes to a lower layer. */
	for (;;) {
		struct layer *l = img->layers[spot->idx];
		_cleanup_(closep) int fd = path_open(l->rootfd, spot->path, O_PATH | O_NOFOLLOW, 0);
		struct spot next = *spot;
		struct stat st;
		uint64_t number;
		int r;

		if (fd < 0 || fstat(fd, &st) < 0)
			return fd < 0 ? fd : -errno;
		r = layer_inner_mount(l, fd, &ret->mount, &ret->ino);
		ret->layer = l;
		if (r < 0)
			return r;
		if (l->has_numbers && snapshot_number_read(fd, "", l->is_doubted, &number)) {
			ret->ino = number;
			return 0;
		}
		r = l->is_snapshot ? step_down(img, fd, st.st_mode, &next) : -ENOENT;
		/* To be shown it is good enough, and not to be written. */
		if (r < 0)
			return r == -ENOENT || spot->top == SIZE_MAX ? 0 : r;
		*spot = next;
	}
}

static int begin(size_t idx, const char *path, size_t top, struct spot *ret)
{
	if (strlen(path) >= sizeof(ret->path))
		return -ENAMETOOLONG;
	*ret = (struct spot){ .idx = idx, .top = top };
	strcpy(ret->path, path);
	return 0;
}

bool snapshot_ino_find(struct image *img, size_t idx, const char *path, struct snapshot_ino *ret)
{
	struct spot spot;

	return begin(idx, path, SIZE_MAX, &spot) == 0 && go_down(img, &spot, ret) == 0;
}

bool snapshot_ino_of_source(struct image *img, struct source *s, struct snapshot_ino *ret)
{
	int fd, r;

	if (s->layer->is_snapshot && snapshot_ino_find(img, index_of(img, s->layer), s->path, ret))
		return true;
	fd = source_pin(s);
	if (fd < 0)
		return false;
	ret->layer = s->layer;
	r = layer_inner_mount(s->layer, fd, &ret->mount, &ret->ino);
	fd_cache_unpin(&s->fd);
	return r == 0;
}

int snapshot_ino_descend(struct image *img, size_t idx, const char *path, size_t top,
			 uint64_t *ret_ino, char ret_path[PATH_MAX])
{
	struct snapshot_ino found;
	struct spot spot;
	int r = begin(idx, path, top, &spot);

	r = r ?: go_down(img, &spot, &found);
	if (r < 0)
		return r;
	*ret_ino = found.ino;
	strcpy(ret_path, spot.at_top);
	return spot.idx >= top;
}
