/* SPDX-License-Identifier: Apache-2.0 */
/* Walks all entries of one layer as they are, for the offline tools. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/partial_xattr.h"

#include <stdbool.h>
#include <sys/stat.h>

/* One entry. Valid only during the call. */
struct layer_walk_entry {
	int dirfd;
	const char *name;
	const char *path; /* relative to the start of the walk */
	struct stat st;
	void *dir; /* *ret_dir of the call for its directory; borrowed from the caller */
};

/* ret_dir: for a directory, the value that its entries get as `dir`. 0; 1: do not enter this
 * directory; -errno: end the walk. */
typedef int layerwalk_fn(void *arg, const struct layer_walk_entry *e, void **ret_dir);
/* Called for an unreadable directory. 0: go on; -errno: end the walk. */
typedef int layerwalk_miss_fn(void *arg, const char *path, int error);

struct layer_walk_hooks {
	layerwalk_fn *fn;
	layerwalk_miss_fn *miss; /* NULL: an unreadable directory ends the walk */
	void *arg;
	const struct step *step; /* NULL: no progress is reported */
};

/* Call fn for every entry below rootfd except "." and "..", a directory before its entries. fn may
 * remove entries. 0 or -errno. */
int layer_walk(int rootfd, void *root_dir, const struct layer_walk_hooks *hooks);
