/* SPDX-License-Identifier: Apache-2.0 */
/* The inode number of what a snapshot has: the one that it had in the upper, before the snapshot
 * was taken. That is the number of what it was copied from or is merged with, further down; else
 * its own. */
#pragma once

#include "veneer/layer/image.h"

#include <limits.h>

struct snapshot_ino {
	const struct layer *layer;
	uint64_t mount; /* as layer_inner_mount */
	ino_t ino;
};

/* What shows the number of layers[idx]'s object at a path, if it is one of the tree that
 * layers[top..) show: 1, with its path there; 0: it is of a layer above these, and has *ret_ino;
 * -errno. */
int snapshot_ino_descend(struct image *img, size_t idx, const char *path, size_t top,
			 uint64_t *ret_ino, char ret_path[PATH_MAX]);
/* Of the entry of img at a path in layers[idx]. False: it cannot be told. */
bool snapshot_ino_find(struct image *img, size_t idx, const char *path, struct snapshot_ino *ret);
