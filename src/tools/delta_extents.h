/* SPDX-License-Identifier: Apache-2.0 */
/* Of a regular file in what some layers change: which of its bytes they have, which are zeros, and
 * which are those of a file in the layers below, its base. */
#pragma once

#include "veneer/tools/diff.h"

enum delta_extent_kind {
	DELTA_EXTENT_DATA,
	DELTA_EXTENT_ZEROS,
	DELTA_EXTENT_BASE,
};

struct delta_extent {
	uint64_t off, len;
	enum delta_extent_kind kind;
};

struct delta_extents {
	struct delta_extent *v; /* ascending, without gaps; owned */
	size_t n, cap;
	uint64_t data; /* bytes */
	char *base; /* the path of the base in the image of the layers below; NULL: none; owned */
	uint64_t base_size;
	bool is_copy; /* a program made it as a copy of the base, which is another file */
};

/* top: the file as the image d->full shows it, size bytes, at path. Each range of the base has
 * whole blocks, but where the base or the file ends. Without a base worth it all bytes are data or
 * zeros. release. 0 or -errno. */
int delta_extents_find(const struct diff *d, struct source *top, const char *path, uint64_t size,
		       struct delta_extents *ret);
void delta_extents_release(struct delta_extents *x);
