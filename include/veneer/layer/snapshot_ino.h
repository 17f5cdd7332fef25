/* SPDX-License-Identifier: Apache-2.0 */
/* The inode number of a file in a snapshot: the one that it had in the upper, before the snapshot
 * was taken. That is the number of its origin, or of the directory merged with it, further down;
 * else its own. */
#pragma once

#include "veneer/layer/image.h"

#include <limits.h>

struct snapshot_ino {
	const struct layer *layer;
	uint64_t mount; /* as layer_inner_mount */
	ino_t ino;
};

/* Find the object that shows the number of layers[idx]'s object at a path, in the tree of
 * layers[top..). 1, with its path there; 0: it is of a layer above these, and has *ret_ino;
 * -errno. */
int snapshot_ino_descend(struct image *img, size_t idx, const char *path, size_t top,
			 uint64_t *ret_ino, char ret_path[PATH_MAX]);
/* Of the entry of img at a path in layers[idx]. False: it cannot be told. */
bool snapshot_ino_find(struct image *img, size_t idx, const char *path, struct snapshot_ino *ret);
/* Of a part of a file of img: of one in a snapshot as above, else its own. Likewise. */
bool snapshot_ino_of_source(struct image *img, struct source *s, struct snapshot_ino *ret);
