/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of a mount that lie in one another: a lower layer must not be written, and what the
 * kernel's overlayfs refuses is refused, but for what callers of fuse-overlayfs rely on. Told by
 * device and inode number, whatever their paths say. */
#pragma once

#include "veneer/mount/mount_dirs.h"

/* d is what o names, opened by this process. 0, maybe with a warning in the log; -EINVAL and one
 * sentence in err; other -errno. */
int dir_overlap_check(const struct mount_opts *o, const struct mount_dirs *d, char *err,
		      size_t err_size);
