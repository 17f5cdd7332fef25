/* SPDX-License-Identifier: Apache-2.0 */
/* The extents of a regular file that some layers change: their own data, zeros, and ranges of a
 * file in the layers below, the base. */
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
	uint64_t data; /* bytes of data */
	char *base; /* path of the base in the image of the layers below, owned; NULL: none */
	uint64_t base_size;
	bool is_copy; /* a program copied the base, which is another file */
};

/* Find the extents of top, which is the file at path in the image d->full, of size bytes. A range
 * of the base consists of whole blocks, except where the base or the file ends. Without a
 * worthwhile base all bytes are data or zeros. Release ret in every case. 0 or -errno. */
int delta_extents_find(const struct diff *d, struct source *top, const char *path, uint64_t size,
		       struct delta_extents *ret);
void delta_extents_release(struct delta_extents *x);
