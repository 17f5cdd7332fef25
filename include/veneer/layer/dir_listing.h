/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of one directory of one layer, as they stand there, sorted by meaning. */
#pragma once

#include "veneer/layer/whiteout.h"

#include <stddef.h>
#include <stdint.h>

struct dir_listing_entry {
	uint32_t name_off; /* in names, NUL-terminated; for a hiding entry the hidden name */
	uint8_t type; /* DT_*, never DT_UNKNOWN */
	bool is_whiteout; /* character device 0:0, or by dir_listing_note_files */
	bool is_hiding; /* ".wh.NAME" */
	uint64_t ino;
};

struct dir_listing {
	struct dir_listing_entry *entries;
	size_t n, cap;
	char *names;
	size_t names_len, names_cap;
	bool is_opaque; /* ".wh..wh..opq" was there */
};

/* Read all of dirfd (O_RDONLY, its offset is used). Reserved names are left out. 0 or -errno;
 * release in both cases. */
int dir_listing_read(int dirfd, struct dir_listing *ret);
/* Of a directory that says that it has whiteouts which are files (whiteout_dir_marks): find
 * them. */
void dir_listing_note_files(struct dir_listing *l, int dirfd);
void dir_listing_release(struct dir_listing *l);
static inline const char *dir_listing_name(const struct dir_listing *l,
					   const struct dir_listing_entry *e)
{
	return l->names + e->name_off;
}
