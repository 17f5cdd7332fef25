/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that has the files of profile.h: their names, the lock, whole reads and writes. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/prefetch/profile.h"

#define PROFILE_DIR_NAME_SIZE sizeof(PROFILE_PREFIX "0123456789abcdef")

struct profile_dir_file {
	uint64_t key;
	off_t size;
	struct timespec mtime;
};

void profile_dir_name(uint64_t key, char ret[PROFILE_DIR_NAME_SIZE]);
/* The writers' lock, until the descriptor is closed; or -errno (-EBUSY: others had it for too
 * long). */
int profile_dir_lock(int dirfd);
/* The file of that key. -ENOENT: there is none. *ret is to be released after each result. borrower:
 * see profile_format_body. */
int profile_dir_read(int dirfd, uint64_t key, bool wants_items,
		     const struct profile_stack *borrower, struct profile_image *ret);
/* Under the lock: put the bytes in the place of the file of that key, all of them or none. */
int profile_dir_write(int dirfd, uint64_t key, const struct buf *bytes);
/* All profiles, in any order; malloc'd. */
int profile_dir_list(int dirfd, struct profile_dir_file **ret, size_t *ret_n);
/* Under the lock: remove what killed writers and earlier versions left, and profiles that were not
 * stored for longest until the rest is within the bounds. */
void profile_dir_sweep(int dirfd, uint64_t keep);
