/* SPDX-License-Identifier: Apache-2.0 */
/* Squashes snapshots of an upper without a mount (offline_upper.h). */
#pragma once

#include "veneer/mount/options.h"
#include "veneer/server/client.h"

/* NULL: as branch_merge_plan. */
struct offline_squash_range {
	const char *from, *to;
};

/* Squash the range; the chain must be locked (branch_dir_lock). Takes the contents of opts over. 0,
 * also if there was nothing to do (n is 0); or -errno after a sentence. */
int offline_squash(struct mount_opts *opts, const struct offline_squash_range *range, bool is_quiet,
		   struct client_squashed *ret);
/* Squash all snapshots of the upper at rootfd into its live part. Results as offline_squash. If it
 * is interrupted, the upper still shows the same. */
int offline_squash_all(struct mount_opts *opts, int rootfd, bool is_quiet);
