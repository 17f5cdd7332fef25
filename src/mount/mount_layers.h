/* SPDX-License-Identifier: Apache-2.0 */
/* The layers below a mount's upper, top first: those that the options name, each followed by the
 * snapshots that it stands on (branch_dir.h), after those of the upper itself. */
#pragma once

#include "veneer/mount/mount.h"

/* Zeroed is empty. */
struct mount_layers {
	struct layer **layers;
	size_t n;
	bool must_hold; /* a snapshot that is a lower layer and is being removed is an error; a
			   mount that goes on must not be lost by a lock that anybody may take */
	bool has_head; /* the upper stands on this one, whatever its chain says, as for a mount that
			  is in use */
	uint64_t head;
};

/* 0, or -errno and one sentence. What is used of dirs is taken over; the upper of a mount that
 * writes stays. Release in any case. */
int mount_layers_open(struct mount_layers *l, struct mount *m, struct mount_dirs *dirs, char *err,
		      size_t err_size);
void mount_layers_release(struct mount_layers *l);
/* Which attributes of a layer are believed: before its first use. */
void mount_layers_trust(struct mount *m, struct layer *l);
