/* SPDX-License-Identifier: Apache-2.0 */
/* One regular file of snapshots that become one, and what is known of all. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/data/snapshot_merge.h"
#include "veneer/map/mapfile.h"

/* Where it is, and where it goes. */
struct snapshot_merge_place {
	size_t idx; /* the layer that shows it */
	const char *path; /* in that layer */
	int dirfd; /* of the new one, in which it is at the path dir */
	const char *dir;
	const char *name;
	const char *below; /* the path that it stands over there, by its place; NULL: none */
};

struct snapshot_merge_files {
	struct snapshot_merge *merge;
	struct mapfile *map; /* of the new one */
	struct htab copies; /* of what has several names */
	char *buf;
};

/* 0 or -errno. */
int snapshot_merge_files_begin(struct snapshot_merge_files *f, struct snapshot_merge *m);
int snapshot_merge_files_add(struct snapshot_merge_files *f, const struct snapshot_merge_place *p);
/* What has this stat and several names, and was copied, gets a name more. 1; 0: it was not; -errno.
 */
int snapshot_merge_files_link(struct snapshot_merge_files *f, const struct stat *st, int dirfd,
			      const char *name);
/* It was copied, to dir/name. 0 or -ENOMEM. */
int snapshot_merge_files_note(struct snapshot_merge_files *f, const struct stat *st,
			      const char *dir, const char *name);
/* The map is on the disk, and says that all else is. 0 or -errno. */
int snapshot_merge_files_finish(struct snapshot_merge_files *f);
void snapshot_merge_files_release(struct snapshot_merge_files *f);

/* Would layers[idx]'s file, symlink or special file at fd, under another name, show the number that
 * it shows? 1, 0 or -errno. */
int snapshot_merge_keeps_number(const struct snapshot_merge *m, int fd, size_t idx,
				const char *path);
/* Give `to` owner, attributes, mode and times of `from`, which has that stat, as they stand there:
 * but for those by which one layer says what it stands over. 0 or -errno. */
int snapshot_merge_attributes(int from, const struct stat *st, int to);
