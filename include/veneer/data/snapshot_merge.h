/* SPDX-License-Identifier: Apache-2.0 */
/* Merges neighbouring snapshots of an upper into one layer over the tree below them (doc/SPEC.md,
 * section 5). Whole files of a snapshot get another name; partial ones are copied by block. The
 * layers that are read do not change, except for the link count and change time of such whole
 * files. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/layer/whiteout.h"

struct snapshot_merge_progress {
	uint64_t entries; /* done, of all kinds */
	uint64_t bytes; /* copied */
};

struct snapshot_merge {
	struct image *image; /* of the snapshots to merge, then of all layers below them */
	size_t n; /* the number of snapshots to merge */
	const struct whiteout_style *style;
	int to; /* the new layer's root, empty except for its hidden directory */
	/* of the layers; NULL: no other process uses them meanwhile */
	struct snapshot_links *links;
	int work_fd; /* a directory of the same file system for temporary files */
	/* Called after each entry and each piece of data; a negative result ends the merge. May be
	 * NULL. */
	int (*step)(void *arg, const struct snapshot_merge_progress *p);
	void *arg;
	struct snapshot_merge_progress progress;
	char *where; /* after a failure: the path, malloc'd, or NULL */
};

/* Fill the new layer. On return it is on the disk. Fails if another process changes the files
 * meanwhile. 0; -EUCLEAN: a damaged file; -errno. */
int snapshot_merge_run(struct snapshot_merge *m);
