/* SPDX-License-Identifier: Apache-2.0 */
/* Files of snapshots that are merged get names in the new one, and keep their old ones for a while
 * (branch_merge.h). Programs see as many names as there are in what they look at. Of the snapshots
 * that this process shows; threads may call all of this. */
#pragma once

#include "veneer/layer/layer.h"

#include <sys/stat.h>

struct snapshot_links;

/* Files of these layers get names in the directory `to`. 0 or -errno; to be ended in both cases
 * where *ret is set. */
int snapshot_links_begin(struct layer *const *layers, size_t n, int to,
			 struct snapshot_links **ret);
/* Link what fd is, of any kind, to a name there; l may be NULL: nobody sees the layers. 0 or
 * -errno. */
int snapshot_links_make(struct snapshot_links *l, int fd, int dirfd, const char *name);
/* All names are as they were, or the old ones are gone. NULL is nothing. */
void snapshot_links_end(struct snapshot_links *l);

/* Of a layer that was just opened: it may be what was made. */
void snapshot_links_attach(struct layer *layer);
void snapshot_links_detach(struct layer *layer);
/* fstatat(2) of what stands in the layer, with AT_SYMLINK_NOFOLLOW. 0 or -errno. */
int snapshot_links_stat(struct layer *layer, int dirfd, const char *name, struct stat *ret);
