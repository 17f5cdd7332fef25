/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a snapshot of a served mount. The upper is moved below an empty one while the mount is open
 * nowhere (mount_table_replace). Programs go on, with the same contents or, after a rollback, with
 * those of an older snapshot. */
#pragma once

#include "veneer/layer/branch_chain.h"
#include "veneer/server/mount_table.h"
#include "wire.h"

/* Parse the names of a SNAPSHOT or ROLLBACK for snapshot_take. A name that is too long, or is
 * missing where one is required, becomes an invalid one. */
void snapshot_take_names(const struct wire_message *m, char ret_to[BRANCH_CHAIN_NAME_MAX + 1],
			 char ret_name[BRANCH_CHAIN_NAME_MAX + 1]);
/* Take a snapshot of the mount. to: the snapshot to roll back to, whose contents every name shows
 * then (mount_rollback.h), or "". name: of the new snapshot; "" makes one from the time and returns
 * it. -ENOENT: there is no such mount; other -errno and a sentence. May take as long as a request
 * of the mount. */
int snapshot_take(struct mount_table *r, const struct mount_table_target *target, const char *to,
		  char name[BRANCH_CHAIN_NAME_MAX + 1], char *err, size_t err_size);
