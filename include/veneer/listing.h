/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of one directory of one layer, as they stand there, sorted into what they mean. */
#pragma once

#include "veneer/whiteout.h"

#include <stddef.h>
#include <stdint.h>

struct listing_entry {
	uint32_t name_off;	/* in names, NUL-terminated; for a hiding entry the hidden name */
	uint8_t type;		/* DT_*, never DT_UNKNOWN */
	bool is_whiteout;	/* character device 0:0, or by listing_note_files */
	bool is_hiding;		/* ".wh.NAME" */
	uint64_t ino;
};

struct listing {
	struct listing_entry *entries;
	size_t n, cap;
	char *names;
	size_t names_len, names_cap;
	bool is_opaque;		/* ".wh..wh..opq" was there */
};

/* Read all of dirfd (O_RDONLY, its offset is used). Reserved names are left out. 0 or -errno; release
 * in both cases. */
int listing_read(int dirfd, struct listing *ret);
/* Of a directory that says that it has whiteouts which are files (whiteout_dir_marks): find them. */
void listing_note_files(struct listing *l, int dirfd);
void listing_release(struct listing *l);
static inline const char *listing_name(const struct listing *l, const struct listing_entry *e)
{
	return l->names + e->name_off;
}
