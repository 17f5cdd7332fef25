/* SPDX-License-Identifier: Apache-2.0 */
/* Squashes neighbouring snapshots of a served mount into one (mount_squash.h). */
#pragma once

#include "wire.h"

#include "veneer/data/snapshot_merge.h"
#include "veneer/layer/branch_chain.h"
#include "veneer/server/mount_table.h"

struct snapshot_squash {
	struct mount_table *mount_table;
	const struct mount_table_target *target;
	char from[BRANCH_CHAIN_NAME_MAX + 1], to[BRANCH_CHAIN_NAME_MAX + 1]; /* "": not given */
	uint64_t rate; /* bytes a second, where an entry counts as a block; 0: no limit */
	/* Called regularly. Not 0: the client is gone, and the squash ends. */
	int (*step)(void *arg, const struct snapshot_merge_progress *p);
	void *arg;
	/* Set from the publication on: answer_gate_leave must follow the answer. */
	bool is_in_gate;
	/* The result: how many snapshots became one, and the work done. */
	size_t n;
	struct snapshot_merge_progress progress;
};

/* Parse the names and the rate in the text of WIRE_SQUASH. False: they are invalid. */
bool snapshot_squash_names(const struct wire_message *m, struct snapshot_squash *ret);
/* Takes long. 0, also if there is nothing to do (n is below 2); -ENOENT: there is no such mount;
 * other -errno, and a sentence. */
int snapshot_squash(struct snapshot_squash *q, char *err, size_t err_size);
/* Call it after the answer, or when there is no client to answer. */
void snapshot_squash_leave(struct snapshot_squash *q);
/* Squash the oldest snapshots as the mount's option squash= wants it after a snapshot. Takes long,
 * and ends early when the server does. Only one runs in a process; a second call does nothing. */
void snapshot_squash_oldest(struct mount_table *t, const struct mount_table_target *target);
