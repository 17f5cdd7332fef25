/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of an upper that no mount uses (offline_upper.h) become one. */
#pragma once

#include "veneer/mount/options.h"
#include "veneer/server/client.h"

/* NULL: as branch_merge_plan. */
struct offline_squash_range {
	const char *from, *to;
};

/* The chain is locked (branch_dir_lock). 0, also where there was nothing to do (n is 0), or -errno
 * after a sentence. Takes what is in the options. */
int offline_squash(struct mount_opts *opts, const struct offline_squash_range *range, bool is_quiet,
		   struct client_squashed *ret);
/* The upper at rootfd has no snapshot any more: all that it shows is in its live part. Likewise;
 * what is interrupted leaves an upper that shows the same. */
int offline_squash_all(struct mount_opts *opts, int rootfd, bool is_quiet);
