/* SPDX-License-Identifier: Apache-2.0 */
/* A path looked up in the tree that some layers show together, without anything kept: minds whiteouts, opaque
 * directories and redirects. Each layer turns the path into the one that goes on below it, so a walk only ever goes
 * down, and takes one visit of each layer. The image is the same rule, kept. */
#pragma once

#include "veneer/layer.h"

#include <limits.h>

enum walk_kind {
	WALK_ABSENT,		/* the layer says nothing of it */
	WALK_HIDDEN,		/* a whiteout, or something on the way that is no directory */
	WALK_DIRECTORY,
	WALK_REGULAR,
	WALK_OTHER,
};

struct walk_step {
	enum walk_kind kind;
	bool is_redirected;	/* it is a directory that says itself what it is merged with */
	bool has_below;
	char path[PATH_MAX];	/* what it stands over, in the layers below; "" without one */
};

/* One layer's word on a plain path in it. 0 or -errno: -EUCLEAN for a redirect that is no path (logged),
 * -ENAMETOOLONG for one that leads to no possible path. */
int walk_visit(struct layer *l, const char *path, struct walk_step *ret);

/* The regular file at a plain path of the tree that layers[from..n) show: its layer, and its path in that
 * (malloc'd). -ENOENT: nothing, or no regular file; -errno. */
ssize_t walk_file(struct layer *const *layers, size_t n, size_t from, const char *path, char **ret_path);

struct walk_list {
	size_t n;
	uint16_t *layers;	/* ascending */
	char **paths;		/* in each of them */
};

/* The directories merged at a plain path of the tree that layers[from..n) show; release. None: n is 0. -EUCLEAN,
 * logged: one of them has a redirect that leads to no directory. */
int walk_directories(struct layer *const *layers, size_t n, size_t from, const char *path, struct walk_list *ret);
void walk_list_release(struct walk_list *l);
