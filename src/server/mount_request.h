/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a client for a served mount: FLATTEN, SNAPSHOT, ROLLBACK and SQUASH. */
#pragma once

#include "snapshot_squash.h"
#include "wire.h"

struct mount_request {
	enum wire_type type;
	struct mount_table_target target;
	char snapshot[BRANCH_CHAIN_NAME_MAX + 1], back_to[BRANCH_CHAIN_NAME_MAX + 1];
	struct snapshot_squash squash;
	bool has_squash_names;
};

bool mount_request_is_one(enum wire_type type);
void mount_request_read(struct mount_request *q, const struct wire_message *m);
/* Do the request, and answer. May take long. */
void mount_request_answer(struct mount_request *q, int fd, struct mount_table *mount_table);
