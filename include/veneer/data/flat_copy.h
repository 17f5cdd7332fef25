/* SPDX-License-Identifier: Apache-2.0 */
/* Flat copies: all bytes of a partial file of a lower layer in one nameless file on that layer's
 * file system (source_flat.h), so that the kernel reads it without us, from pages that all mounts
 * of these layers share. It ends with the last mount that uses it: nothing of it is found after a
 * crash, and nobody else can have written it. */
#pragma once

#include "veneer/layer/source.h"

/* A request for so many bytes of s, which is partial and size bytes long, was answered. True, once:
 * reading without a copy has cost by now what making one costs (the rule of renting until the rent
 * has reached the price: Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988). */
bool flat_copy_note_read(struct source *s, size_t len, off_t size);

struct flat_copy_pace {
	int (*go_on)(void *arg, uint64_t bytes); /* called after so many were copied: 0, or -errno
						    to give up */
	void *arg;
};

/* Make the copy: 1; 0: there is one. dirfd: a directory in the mount of the layer, else -EXDEV, as
 * where there can be none (source_flat_is_possible). -EAGAIN: a file of the chain was changed just
 * now, or meanwhile; -ESTALE: it had one and was changed; -errno. Takes no lock; the layers' access
 * times stay as they are. */
int flat_copy_make(struct source *s, off_t size, int dirfd, const struct flat_copy_pace *pace);
