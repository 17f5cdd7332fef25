/* SPDX-License-Identifier: Apache-2.0 */
/* What neighbouring snapshots of an upper show together, as one layer over what they stand on
 * (doc/SPEC.md, section 5). Files that are in one of them as a whole get another name; what is
 * there by blocks is copied by block. Nothing that is read changes, but for the number of names and
 * the change time of such files. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/layer/whiteout.h"

struct snapshot_merge_progress {
	uint64_t entries; /* done, of all kinds */
	uint64_t bytes; /* copied */
};

struct snapshot_merge {
	struct image *image; /* of those that become one, then all that they stand on */
	size_t n; /* how many become one */
	const struct whiteout_style *style;
	int to; /* the new one's root, empty but for its hidden directory */
	struct snapshot_links *links; /* of the layers; NULL: nobody sees them meanwhile */
	int work_fd; /* a directory of the same file system for temporary files */
	/* After each entry and each piece of data. Not 0: the merge ends with that. NULL: no one
	 * asks. */
	int (*step)(void *arg, const struct snapshot_merge_progress *p);
	void *arg;
	struct snapshot_merge_progress progress;
	char *where; /* after a failure: the path, malloc'd, or NULL */
};

/* Fill it. All is on the disk when this returns. Files that somebody else changes meanwhile make it
 * fail. 0; -EUCLEAN: a damaged file; -errno. */
int snapshot_merge_run(struct snapshot_merge *m);
