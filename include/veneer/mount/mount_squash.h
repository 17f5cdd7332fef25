/* SPDX-License-Identifier: Apache-2.0 */
/* Squashes neighbouring snapshots of a mount's upper into one: snapshot_merge.h, between the begin
 * and the end of branch_merge.h. The mount may be in use while the squash is filled, and must be
 * closed when it is published. */
#pragma once

#include "veneer/data/snapshot_merge.h"
#include "veneer/mount/mount.h"

/* The squash outlives the mount. */
struct mount_squash {
	int rootfd, work_fd; /* duplicates; -1: none */
	bool is_volatile;
	bool is_begun; /* begun, and neither published nor cancelled */
	bool is_published;
	uint64_t *ids; /* of the snapshots, topmost first */
	size_t n;
	struct mount_squash_root *roots; /* of the snapshots */
	struct whiteout_style style;
	struct image *held; /* the mount's image, while filling: its layers stay open */
	int fresh; /* after publication: result of branch_merge_publish; else -1 */
	struct snapshot_merge merge;
};

#define MOUNT_SQUASH_NONE                                                 \
	(struct mount_squash)                                             \
	{                                                                 \
		.rootfd = -1, .work_fd = -1, .fresh = -1, .merge.to = -1, \
	}

/* Begin with the snapshots from `from` up to `to`, as in branch_merge_plan; call it under
 * branch_dir_lock. 0; -EROFS: the mount has no writable upper; -ENOTCONN: the mount does not stand
 * on them; or an errno of branch_merge_plan or branch_merge_begin. Release it in every case. */
int mount_squash_begin(struct mount *m, const char *from, const char *to, struct mount_squash *ret);
/* Fill the squash. Takes long. step and errors: see snapshot_merge_run. */
int mount_squash_fill(struct mount_squash *s,
		      int (*step)(void *arg, const struct snapshot_merge_progress *p), void *arg);
/* For a mount in use, before requests stop: resolve the inodes that a dead server left, as long as
 * files have the old inode numbers. 0 or -errno. */
int mount_squash_settle(struct mount *m);
/* Call it when requests wait. 0; -EUSERS: a file is in use that could not be found any more, or is
 * not resolved yet; -ENOTCONN: the mount does not stand on the snapshots any more. */
int mount_squash_check(struct mount *m, const struct mount_squash *s);
/* Publish the squash; errors as branch_merge_publish. On release branch_merge_tidy is called. */
int mount_squash_publish(struct mount_squash *s);
/* Remove an unpublished squash, or the snapshots that a published one replaced. The latter takes
 * long. */
void mount_squash_release(struct mount_squash *s);
/* A sentence for an error of these functions. */
const char *mount_squash_reason(int r);
