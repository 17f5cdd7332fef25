/* SPDX-License-Identifier: Apache-2.0 */
/* The partial mark to and from bytes: the value of FORMAT_PARTIAL_ATTR (doc/SPEC.md, section 2).
 * Pure. The content of a mark is hostile: decoding proves its shape, never that it tells the
 * truth. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/base/types.h"

#include <sys/stat.h>

#define PARTIAL_XATTR_PATH_MAX 4096 /* with its NUL */

struct partial_xattr {
	file_id_t file_id; /* in the map of the file's layer; never 0 */
	uint32_t uuid_low; /* low half of that map's uuid */
	uint64_t lower_size; /* of the lower file when the mark was made, bytes */
	int64_t lower_mtime_s;
	uint32_t lower_mtime_ns;
	bool is_copy; /* with a path: of another file, which keeps its inode number to itself */
	bool is_sealed; /* not of the bytes: see xattr_trust.h */
	char path[PARTIAL_XATTR_PATH_MAX]; /* plain relative path in the stack below; "" is the own
					      path */
};

/* Append the mark's bytes to out. 0; -EINVAL when it says something no mark may say; -ENOMEM. */
int partial_xattr_encode(const struct partial_xattr *m, struct buf *out);
/* Does the lower file still look as the mark says? */
bool partial_xattr_fits(const struct partial_xattr *m, const struct stat *lower);
/* 0, or -EUCLEAN when anything at all is off (then *ret is untouched). */
int partial_xattr_decode(const void *p, size_t len, struct partial_xattr *ret);
