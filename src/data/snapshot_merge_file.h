/* SPDX-License-Identifier: Apache-2.0 */
/* Merges one regular file of the snapshots; holds the state shared by all files. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/data/snapshot_merge.h"
#include "veneer/map/mapfile.h"

/* The place of a file in the snapshots and in the new layer. */
struct snapshot_merge_place {
	size_t idx; /* the layer that shows it */
	const char *path; /* in that layer */
	int dirfd; /* of the new layer, at the path dir */
	const char *dir;
	const char *name;
	const char *below; /* the path in the tree below that it covers by its place; NULL: none */
};

struct snapshot_merge_files {
	struct snapshot_merge *merge;
	struct mapfile *map; /* of the new layer */
	struct htab copies; /* copied files with several names */
	char *buf;
};

/* 0 or -errno. */
int snapshot_merge_files_begin(struct snapshot_merge_files *f, struct snapshot_merge *m);
int snapshot_merge_files_add(struct snapshot_merge_files *f, const struct snapshot_merge_place *p);
/* Give a copied file with several names, found by its stat, one more name. 1; 0: it was not copied;
 * -errno. */
int snapshot_merge_files_link(struct snapshot_merge_files *f, const struct stat *st, int dirfd,
			      const char *name);
/* Record that the file with this stat was copied to dir/name. 0 or -ENOMEM. */
int snapshot_merge_files_note(struct snapshot_merge_files *f, const struct stat *st,
			      const char *dir, const char *name);
/* Write the map, which asserts that all other files are on the disk. 0 or -errno. */
int snapshot_merge_files_finish(struct snapshot_merge_files *f);
void snapshot_merge_files_release(struct snapshot_merge_files *f);

/* Would a symlink, regular or special file of layers[idx], open at fd, show the same inode number
 * under another name? 1, 0 or -errno. */
int snapshot_merge_keeps_number(const struct snapshot_merge *m, int fd, size_t idx,
				const char *path);
/* Give `to` the owner, attributes, mode and times of `from`, whose stat is st, except attributes
 * that refer to lower layers. 0 or -errno. */
int snapshot_merge_attributes(int from, const struct stat *st, int to);
