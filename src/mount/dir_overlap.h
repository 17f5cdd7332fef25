/* SPDX-License-Identifier: Apache-2.0 */
/* Finds directories of a mount that lie in one another. A lower layer must not be written. Overlaps
 * that overlayfs refuses are refused, too, with exceptions for the callers of fuse-overlayfs.
 * Directories are compared by device and inode number, not by path. */
#pragma once

#include "veneer/mount/mount_dirs.h"

/* d has the directories of o, opened by this process. 0, perhaps after a warning in the log;
 * -EINVAL and a sentence in err; other -errno. */
int dir_overlap_check(const struct mount_opts *o, const struct mount_dirs *d, char *err,
		      size_t err_size);
