/* SPDX-License-Identifier: Apache-2.0 */
/* Going through a directory tree of the backing file system that is as deep and as wide as a
 * container liked: levels are kept on the heap, a few descriptors are open at a time, and no path
 * is ever put together. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

struct dir_walk_hooks {
	/* A name, with what it is: not the root, and never "." or "..". All of a directory come
	 * before anything in one of them. 1: go into it, which must be a directory; 0: do not. */
	int (*entry)(void *arg, int dirfd, const char *name, const struct stat *st);
	/* Called for an entry that cannot be looked at, entered or read ("." is the root); -ESTALE
	 * of "..": a directory was moved meanwhile, and what is left beside it is not found. 0: go
	 * on without it. */
	int (*miss)(void *arg, const char *name, int error);
	/* May be written: what a mode keeps its owner out of is gone into (mode_relax.h). */
	bool is_ours;
};

/* -errno of a hook ends the walk. rootfd, which may be O_PATH, is borrowed. No symlink is followed;
 * access times stay where that is allowed. 0, -ENOMEM or what a hook said. */
int dir_walk(int rootfd, const struct dir_walk_hooks *hooks, void *arg);
