/* SPDX-License-Identifier: Apache-2.0 */
/* Going through all entries of one layer as they stand there, for the offline tools. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/partial_xattr.h"

#include <stdbool.h>
#include <sys/stat.h>

/* One entry. All of it is valid during the call only. */
struct layer_walk_entry {
	int dirfd;
	const char *name;
	const char *path; /* relative to where the walk began */
	struct stat st;
	void *dir; /* what the call for its directory left in *ret_dir; borrowed from the caller */
};

/* ret_dir: of a directory, what its entries are told as `dir`. 0, 1 (do not enter this directory),
 * or -errno, which ends the walk. */
typedef int layerwalk_fn(void *arg, const struct layer_walk_entry *e, void **ret_dir);
/* A directory that cannot be entered. 0: go on; -errno ends the walk. */
typedef int layerwalk_miss_fn(void *arg, const char *path, int error);

struct layer_walk_hooks {
	layerwalk_fn *fn;
	layerwalk_miss_fn *miss; /* NULL: what cannot be entered ends the walk */
	void *arg;
	const struct step *step; /* NULL: nobody asks */
};

/* Call fn for every entry below rootfd but "." and "..", a directory's entries after itself.
 * Entries may be removed by fn. 0 or -errno. */
int layer_walk(int rootfd, void *root_dir, const struct layer_walk_hooks *hooks);
