// SPDX-License-Identifier: Apache-2.0
#include "snapshot_ino.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <string.h>

/* Where an object is. */
struct spot {
	size_t idx;
	char path[PATH_MAX];
};

/* The first of layers[from..n) that has something at spot->path, which must be of that kind. 0;
 * -ENOENT; -errno. */
static int find_below(struct image *img, size_t from, enum path_resolve_kind kind,
		      struct spot *spot)
{
	for (size_t k = from; k < img->n; k++) {
		struct path_resolve_step step;
		int r = path_resolve_visit(img->layers[k], spot->path, &step);

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

/* What a directory is merged with. */
static int below_directory(struct image *img, struct spot *spot)
{
	struct path_resolve_step step;
	int r = path_resolve_visit(img->layers[spot->idx], spot->path, &step);

	if (r < 0 || !step.has_below)
		return r < 0 ? r : -ENOENT;
	strcpy(spot->path, step.path);
	return find_below(img, spot->idx + 1, PATH_RESOLVE_DIRECTORY, spot);
}

/* What a whole copy was copied from. */
static int below_copy(struct image *img, int fd, bool is_regular, struct spot *spot)
{
	char origin[PATH_MAX];
	int r = origin_xattr_read(fd, "", img->layers[spot->idx]->is_doubted, origin);

	if (r != 1)
		return r < 0 ? r : -ENOENT;
	strcpy(spot->path, origin);
	return find_below(img, spot->idx + 1,
			  is_regular ? PATH_RESOLVE_REGULAR : PATH_RESOLVE_OTHER, spot);
}

/* The bottom of the chain of a partial file. */
static int below_partial(struct image *img, struct spot *spot)
{
	struct source *top, *s;
	int r = source_new(img->layers, img->n, spot->idx, spot->path, &top, NULL);

	if (r < 0)
		return r;
	for (s = top; s->below; s = s->below)
		;
	r = s == top ? -ENOENT : 0;
	for (size_t k = spot->idx + 1; s != top && k < img->n; k++)
		if (img->layers[k] == s->layer)
			spot->idx = k;
	if (r == 0)
		strcpy(spot->path, s->path);
	source_free(top);
	return r;
}

/* 0: spot is what stands for it further down; -ENOENT: it stands for itself. */
static int step_down(struct image *img, int fd, mode_t mode, struct spot *spot)
{
	int r;

	if (S_ISDIR(mode))
		return below_directory(img, spot);
	r = S_ISREG(mode) && img->has_map[spot->idx] ? below_partial(img, spot) : -ENOENT;
	return r == -ENOENT ? below_copy(img, fd, S_ISREG(mode), spot) : r;
}

bool snapshot_ino_find(struct image *img, size_t idx, const char *path, struct snapshot_ino *ret)
{
	struct spot spot = { .idx = idx };

	if (strlen(path) >= sizeof(spot.path))
		return false;
	strcpy(spot.path, path);
	/* Each step goes to a lower layer. */
	for (;;) {
		struct layer *l = img->layers[spot.idx];
		_cleanup_(closep) int fd = path_open(l->rootfd, spot.path, O_PATH | O_NOFOLLOW, 0);
		struct spot next = spot;
		struct stat st;

		if (fd < 0 || fstat(fd, &st) < 0 ||
		    layer_inner_mount(l, fd, &ret->mount, &ret->ino) < 0)
			return false;
		if (!l->is_snapshot || step_down(img, fd, st.st_mode, &next) < 0) {
			ret->layer = l;
			return true;
		}
		spot = next;
	}
}
