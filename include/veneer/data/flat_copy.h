/* SPDX-License-Identifier: Apache-2.0 */
/* Flat copies: all bytes of a partial file of a lower layer in one nameless file on that layer's
 * file system (source_flat.h). The kernel then reads it without the server, from pages that all
 * mounts of these layers share. The copy ends with the last mount that uses it: a crash leaves
 * nothing, and no other process can have written it. */
#pragma once

#include "veneer/layer/source.h"

/* Count an answered read of len bytes of s, a partial file of size bytes. True, once: reads without
 * a copy have now cost as much as making one. (Rent until the rent has reached the price: Karlin et
 * al., "Competitive snoopy caching", Algorithmica 3, 1988.) */
bool flat_copy_note_read(struct source *s, size_t len, off_t size);

struct flat_copy_pace {
	/* called after each copied piece of that many bytes: 0, or -errno to stop */
	int (*go_on)(void *arg, uint64_t bytes);
	void *arg;
};

/* Make the copy: 1; 0: a copy exists. dirfd: a directory in the mount of the layer, else -EXDEV,
 * also where no copy is possible (source_flat_is_possible). -EAGAIN: a file of the chain changed
 * just now or during the copy. -ESTALE: the file had a copy and was changed since. -errno. Takes no
 * lock. Access times in the layers do not change. */
int flat_copy_make(struct source *s, off_t size, int dirfd, const struct flat_copy_pace *pace);
