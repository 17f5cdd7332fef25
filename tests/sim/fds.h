/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors and paths of the made-up kernel. */
#pragma once

#include "fs.h"
#include "sim.h"

#include <limits.h>

/* The inode behind it; 0 and EBADF in errno: none. */
uint32_t fds_ino(int fd);
struct sim_fd *fds_get(int fd);
static inline bool fds_is_ours(int fd)
{
	return fd >= SIM_FD_FIRST;
}
/* A new one, from `least` on; -EMFILE. */
int fds_new(uint32_t ino, int flags, int least);
int fds_close(int fd);
/* All that a killed server had. */
void fds_close_all(void);

struct fds_place {
	uint32_t dir; /* 0: the object itself was named, by a descriptor */
	char name[NAME_MAX + 1];
	int ino; /* of the object, or -errno */
};

/* Where (dirfd, path) leads. Links in the middle are not followed; a link of /proc/self/fd is, and
 * is the object. 0 or -errno where a directory on the way is missing. */
int fds_resolve(int dirfd, const char *path, struct fds_place *ret);
/* Is it one of the made-up disk's? Others are answered with ENOENT, but /dev/null. */
bool fds_is_path_ours(int dirfd, const char *path);
