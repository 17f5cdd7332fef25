/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an upper into a layer of plain files, without partial files, redirected directories and
 * map. Offline: it works on the tree of a mount without users. If it is stopped at any point, the
 * layer still shows the same, and flatten can be run again. */
#pragma once

#include "veneer/union/inode.h"

struct flatten_stats {
	size_t files, nfiles; /* partial files seen so far, and in the map */
	uint64_t bytes,
		nbytes; /* bytes copied into those files so far, and missing bytes by the map */
	size_t copied, dirs; /* entries copied into redirected directories, and the number of those
				directories */
	size_t left; /* entries that had to stay unchanged; the log names each */
	bool has_removed_map;
};

/* Flatten the upper of t, which must be locked and otherwise unused. step (may be NULL) is called
 * regularly. 0, also if some entries stay unchanged; -ENOSPC, -EDQUOT, -ENOMEM and the like: it had
 * to stop. *ret is filled in both cases. Changes the times of the upper's root. */
int flatten_tree(struct union_fs *t, void (*step)(void *arg, const struct flatten_stats *s),
		 void *arg, struct flatten_stats *ret);
