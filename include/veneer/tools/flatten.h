/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one upper a layer of plain files: no partial file, no redirected directory, no map.
 * Offline: works on the tree of a mount that nobody sees. Whenever it is stopped the layer shows
 * what it showed, and it can be run again. */
#pragma once

#include "veneer/union/inode.h"

struct flatten_stats {
	size_t files, nfiles; /* partial files seen so far, and how many the map speaks of */
	uint64_t bytes,
		nbytes; /* copied so far into those files, and what the map says is not there */
	size_t copied,
		dirs; /* entries copied into redirected directories, and how many those are */
	size_t left; /* what had to be left as it is; each was named in a logged line */
	bool has_removed_map;
};

/* Flatten the upper of t, which is locked and used by nobody else. step (may be NULL) is called now
 * and then. 0, also when something was left; -ENOSPC, -EDQUOT, -ENOMEM and the like when it had to
 * stop. *ret is filled in both cases. Changes the times of the upper's root. */
int flatten_tree(struct union_fs *t, void (*step)(void *arg, const struct flatten_stats *s),
		 void *arg, struct flatten_stats *ret);
