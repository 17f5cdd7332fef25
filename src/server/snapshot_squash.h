/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring snapshots of a mount that is served become one (mount_squash.h). */
#pragma once

#include "wire.h"

#include "veneer/data/snapshot_merge.h"
#include "veneer/layer/branch_chain.h"
#include "veneer/server/mount_table.h"

struct snapshot_squash {
	struct mount_table *mount_table;
	const struct mount_table_target *target;
	char from[BRANCH_CHAIN_NAME_MAX + 1], to[BRANCH_CHAIN_NAME_MAX + 1]; /* "": not given */
	uint64_t rate; /* bytes a second, an entry counts as a block; 0: no limit */
	/* Called now and then. Not 0: nobody waits for it any more, and it ends. */
	int (*step)(void *arg, const struct snapshot_merge_progress *p);
	void *arg;
	/* From its publication on: answer_gate_leave follows the answer. */
	bool is_in_gate;
	/* Then: how many became one, and what that took. */
	size_t n;
	struct snapshot_merge_progress progress;
};

/* The names and the rate in the text of WIRE_SQUASH. False: these are none. */
bool snapshot_squash_names(const struct wire_message *m, struct snapshot_squash *ret);
/* Takes long. 0, also when there is nothing to do (n is below 2); -ENOENT: no mount fits; other
 * -errno, and a sentence. */
int snapshot_squash(struct snapshot_squash *q, char *err, size_t err_size);
/* After the answer, if there is anybody to be answered. */
void snapshot_squash_leave(struct snapshot_squash *q);
/* What the option squash= of that mount asks for after a snapshot. Takes long, and ends early when
 * the server does; one at a time in a process, others do nothing. */
void snapshot_squash_oldest(struct mount_table *t, const struct mount_table_target *target);
