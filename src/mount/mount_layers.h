/* SPDX-License-Identifier: Apache-2.0 */
/* The layers below a mount's upper, top first: first the snapshots of the upper, then each
 * lowerdir, followed by the snapshots that it stands on (branch_dir.h). */
#pragma once

#include "veneer/mount/mount.h"

/* Zero-initialised: empty. */
struct mount_layers {
	struct layer **layers;
	size_t n;
	bool must_hold; /* a snapshot as a lower layer that is being removed is an error; unset when
			   a mount is reopened, which a foreign lock must not end */
	bool has_head; /* use head, not the head of the chain; for a mount in use */
	uint64_t head;
};

/* Open the layers. Takes the used members of dirs over; the upper of a writing mount stays there.
 * 0, or -errno and a sentence. Release l in every case. */
int mount_layers_open(struct mount_layers *l, struct mount *m, struct mount_dirs *dirs, char *err,
		      size_t err_size);
void mount_layers_release(struct mount_layers *l);
/* Decide which attributes of a layer are trusted, before its first use. */
void mount_layers_trust(struct mount *m, struct layer *l);
