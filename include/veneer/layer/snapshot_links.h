/* SPDX-License-Identifier: Apache-2.0 */
/* Files of snapshots that are merged get names in the new one, and keep their old ones for a while
 * (branch_merge.h). Programs see the link count of the tree that they look at. Of the snapshots
 * that this process shows; threads may call all of this. */
#pragma once

#include "veneer/layer/layer.h"

#include <sys/stat.h>

struct snapshot_links;

/* Files of these layers get names in the directory `to`. 0 or -errno; to be ended in both cases
 * where *ret is set. */
int snapshot_links_begin(struct layer *const *layers, size_t n, int to,
			 struct snapshot_links **ret);
/* Link the object of fd, of any kind, to a name there; l may be NULL: nobody sees the layers. 0 or
 * -errno. */
int snapshot_links_make(struct snapshot_links *l, int fd, int dirfd, const char *name);
/* All names are as they were, or the old ones are gone. NULL is nothing. */
void snapshot_links_end(struct snapshot_links *l);
/* Some could not be removed: programs do not see them until snapshot_links_gone reports that they
 * are gone. to: the new snapshot, open for reading, while no layer has it; else -1. */
void snapshot_links_leave(struct snapshot_links *l, int to);
/* The rest of a merge is gone; st: of the directory `to` that it was made in. */
void snapshot_links_gone(const struct stat *st);

/* Of a layer that was just opened: it may be the new snapshot, or one of the others. */
void snapshot_links_attach(struct layer *layer);
void snapshot_links_detach(struct layer *layer);
/* fstatat(2) of the entry in the layer, with AT_SYMLINK_NOFOLLOW. 0 or -errno. */
int snapshot_links_stat(struct layer *layer, int dirfd, const char *name, struct stat *ret);
