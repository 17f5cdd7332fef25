/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a directory tree of the backing file system, whose depth and width a container decides:
 * levels are on the heap, few descriptors are open at a time, and no path is ever assembled. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

struct dir_walk_hooks {
	/* Called for each name with its stat, except the root, "." and "..". All names of a
	 * directory come before the walk enters one of them. 1: enter it, which must be a
	 * directory; 0: do not; -errno: end the walk. */
	int (*entry)(void *arg, int dirfd, const char *name, const struct stat *st);
	/* Called for an entry that cannot be statted, entered or read ("." is the root). -ESTALE of
	 * "..": a directory was moved meanwhile, and the walk misses its remaining siblings. 0:
	 * continue; -errno: end the walk. */
	int (*miss)(void *arg, const char *name, int error);
	/* the tree may be written: enter directories whose mode denies their owner
	 * (mode_relax.h) */
	bool is_ours;
};

/* rootfd may be O_PATH, and is borrowed. Follows no symlink; preserves access times if permitted.
 * 0, -ENOMEM or the -errno of a hook. */
int dir_walk(int rootfd, const struct dir_walk_hooks *hooks, void *arg);
