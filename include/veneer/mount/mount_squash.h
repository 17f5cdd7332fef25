/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring snapshots of a mount's upper become one: snapshot_merge.h, between branch_merge.h's
 * beginning and end. The mount may be in use while it is filled, and is open nowhere when it is
 * published. */
#pragma once

#include "veneer/data/snapshot_merge.h"
#include "veneer/mount/mount.h"

/* It lives on without the mount. */
struct mount_squash {
	int rootfd, work_fd; /* its own; -1: none */
	bool is_volatile;
	bool is_begun; /* and neither published nor cancelled */
	bool is_published;
	uint64_t *ids; /* of the snapshots, topmost first */
	size_t n;
	struct mount_squash_root *roots; /* of the snapshots */
	struct whiteout_style style;
	struct image *held; /* while it is filled: as of a mount, so that its layers stay open */
	int fresh; /* after it was published: what branch_merge_publish gives; -1 */
	struct snapshot_merge merge;
};

#define MOUNT_SQUASH_NONE                                                 \
	(struct mount_squash)                                             \
	{                                                                 \
		.rootfd = -1, .work_fd = -1, .fresh = -1, .merge.to = -1, \
	}

/* Those from `from` up to `to`, as branch_merge_plan; under branch_dir_lock. 0; -EROFS: the mount
 * has no upper that it may write; -ENOTCONN: it does not stand on them; as branch_merge_plan and
 * branch_merge_begin. Release in both cases. */
int mount_squash_begin(struct mount *m, const char *from, const char *to, struct mount_squash *ret);
/* Takes long. step: of snapshot_merge.h. As snapshot_merge_run. */
int mount_squash_fill(struct mount_squash *s,
		      int (*step)(void *arg, const struct snapshot_merge_progress *p), void *arg);
/* Of a mount in use, before requests stop: find what a dead server left, while it has its old
 * number. 0 or -errno. */
int mount_squash_settle(struct mount *m);
/* Requests wait. 0; -EUSERS: a file is in use that would not be seen any more, or that is not found
 * yet; -ENOTCONN: the mount does not stand on them any more. */
int mount_squash_check(struct mount *m, const struct mount_squash *s);
/* As branch_merge_publish. Then branch_merge_tidy is called on release. */
int mount_squash_publish(struct mount_squash *s);
/* What was not published goes, and of what was published what it replaced, which takes long. */
void mount_squash_release(struct mount_squash *s);
/* The sentence of a failure of any of these. */
const char *mount_squash_reason(int r);
