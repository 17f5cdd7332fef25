/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a snapshot of a mount that is served: its upper is moved below an empty one while the
 * mount is open nowhere (mount_table_replace), and programs in it go on, with what they have or
 * with what an older snapshot has. */
#pragma once

#include "veneer/layer/branch_chain.h"
#include "veneer/server/mount_table.h"
#include "wire.h"

/* Those in a message of type SNAPSHOT or ROLLBACK, as snapshot_take has them. Too long a one
 * becomes one that is refused, and so does none where there must be one. */
void snapshot_take_names(const struct wire_message *m, char ret_to[BRANCH_CHAIN_NAME_MAX + 1],
			 char ret_name[BRANCH_CHAIN_NAME_MAX + 1]);
/* Of the mount that target says. to: "", or the snapshot that every name shows from then on
 * (mount_rollback.h). name: "" for one that says the time; on success that of the new snapshot.
 * -ENOENT: no mount fits; other -errno and a sentence. May take as long as a request of the
 * mount. */
int snapshot_take(struct mount_table *r, const struct mount_table_target *target, const char *to,
		  char name[BRANCH_CHAIN_NAME_MAX + 1], char *err, size_t err_size);
