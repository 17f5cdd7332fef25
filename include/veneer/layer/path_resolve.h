/* SPDX-License-Identifier: Apache-2.0 */
/* A path looked up in the tree that some layers show together, without anything kept: minds
 * whiteouts, opaque directories and redirects. Each layer turns the path into the one that goes on
 * below it, so a walk only ever goes down, and takes one visit of each layer. The image is the same
 * rule, kept. */
#pragma once

#include "veneer/layer/layer.h"

#include <limits.h>

enum path_resolve_kind {
	PATH_RESOLVE_ABSENT, /* the layer says nothing of it */
	PATH_RESOLVE_HIDDEN, /* a whiteout, or something on the way that is no directory */
	PATH_RESOLVE_DIRECTORY,
	PATH_RESOLVE_REGULAR,
	PATH_RESOLVE_OTHER,
};

struct path_resolve_step {
	enum path_resolve_kind kind;
	bool is_redirected; /* a directory that names itself its other part */
	bool has_below;
	char path[PATH_MAX]; /* its path in the layers below; "" without one */
};

/* Resolve a plain path in one layer. 0 or -errno: -EUCLEAN for a redirect that is no path (logged),
 * -ENAMETOOLONG for one that leads to no possible path. */
int path_resolve_visit(struct layer *l, const char *path, struct path_resolve_step *ret);

/* The same in layers[*idx], which may be in two parts: *idx becomes that of the part with the first
 * component of the path. A walk goes on at layer_below. */
int path_resolve_visit_parts(struct layer *const *layers, size_t n, size_t *idx, const char *path,
			     struct path_resolve_step *ret);

/* The regular file at a plain path of the tree that layers[from..n) show: its layer, and its path
 * in that (malloc'd). -ENOENT: nothing, or no regular file; -errno. */
ssize_t path_resolve_file(struct layer *const *layers, size_t n, size_t from, const char *path,
			  char **ret_path);

/* Turn a plain path in the tree of layers[from..) into the path of the same object in the tree of
 * layers[to..) alone. layers[from..to) are snapshots of one upper, with no rest. 0; -ENOENT: one of
 * these layers hides the object, or has it; -errno. */
int path_resolve_descend(struct layer *const *layers, size_t from, size_t to, char path[PATH_MAX]);

struct path_resolve_list {
	size_t n;
	uint16_t *layers; /* ascending */
	char **paths; /* in each of them */
};

/* The directories merged at a plain path of the tree that layers[from..n) show; release. None: n is
 * 0. -EUCLEAN, logged: one of them has a redirect that leads to no directory. */
int path_resolve_directories(struct layer *const *layers, size_t n, size_t from, const char *path,
			     struct path_resolve_list *ret);
void path_resolve_list_release(struct path_resolve_list *l);
