/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a snapshot of a mount that is served: its upper is moved below an empty one while the
 * mount is open nowhere (mount_table_replace), and programs in it go on. */
#pragma once

#include "veneer/layer/branch_chain.h"
#include "veneer/server/mount_table.h"

/* The name in a message. Too long a one becomes one that is refused. */
void snapshot_take_name(const char *text, size_t len, char ret[BRANCH_CHAIN_NAME_MAX + 1]);
/* Of the mount that target says. name: "" for one that says the time; on success the snapshot's.
 * -ENOENT: no mount fits; other -errno and a sentence. May take as long as a request of the
 * mount. */
int snapshot_take(struct mount_table *r, const struct mount_table_target *target,
		  char name[BRANCH_CHAIN_NAME_MAX + 1], char *err, size_t err_size);
