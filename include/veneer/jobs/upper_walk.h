/* SPDX-License-Identifier: Apache-2.0 */
/* Going through all that is in the upper of a mount, as the mount shows it: what is in a directory
 * before the directory itself is left. The mount may be in use; what comes or goes meanwhile may be
 * seen or not. */
#pragma once

#include "veneer/union/inode.h"

struct upper_walk_hooks {
	/* A directory of the upper, before its names are listed; parent and name are NULL for the
	 * root. 1: go into it; 0: leave it out. */
	int (*enter)(void *arg, struct inode *parent, const char *name, struct inode *dir);
	/* All of it has been seen. */
	int (*leave)(void *arg, struct inode *dir);
	/* Anything else of the upper. */
	int (*entry)(void *arg, struct inode *parent, const char *name, struct inode *i);
	/* Called for an entry that cannot be looked up or listed; "." is parent itself. 0: go
	 * on. */
	int (*miss)(void *arg, struct inode *parent, const char *name, int error);
};

/* Inodes and names are borrowed for the call. -errno of a hook ends the walk at once. No lock is
 * held at any of the calls; enter and leave may be NULL. 0, -ENOMEM or that. */
int upper_walk(struct union_fs *t, const struct upper_walk_hooks *hooks, void *arg);
