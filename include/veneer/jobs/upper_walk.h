/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the whole upper of a mount, as the mount shows it, depth first. The mount may be in use;
 * names that are made or removed meanwhile may be visited or not. */
#pragma once

#include "veneer/union/inode.h"

struct upper_walk_hooks {
	/* A directory of the upper, before its names are listed; parent and name are NULL for the
	 * root. 1: go into it; 0: leave it out. */
	int (*enter)(void *arg, struct inode *parent, const char *name, struct inode *dir);
	/* The directory is done. */
	int (*leave)(void *arg, struct inode *dir);
	/* Anything else of the upper. */
	int (*entry)(void *arg, struct inode *parent, const char *name, struct inode *i);
	/* Called for an entry that cannot be looked up or listed; "." is parent itself. 0: go
	 * on. */
	int (*miss)(void *arg, struct inode *parent, const char *name, int error);
};

/* Inodes and names are borrowed for the call. -errno of a hook ends the walk and is returned. No
 * lock is held at any of the calls; enter and leave may be NULL. 0, -ENOMEM or that. */
int upper_walk(struct union_fs *t, const struct upper_walk_hooks *hooks, void *arg);
