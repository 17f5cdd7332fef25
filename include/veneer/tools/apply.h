/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the changes of a layer to the directory below it. Conflicts, which both sides changed,
 * are found first. The changes come from a tar, which can be read again after a crash. */
#pragma once

#include "veneer/tools/diff.h"

#include <time.h>

/* Call fn for each conflict: a path that d changes and that was also changed in the directory. A
 * path counts as changed if its change time, which programs cannot set, is `since` or later. d
 * lists all (diff_read), on that directory alone. The number of conflicts or -errno. */
ssize_t apply_find_conflicts(const struct diff *d, int dirfd, const struct timespec *since,
			     void (*fn)(void *arg, const char *path), void *arg);

/* Does the root have another mode or other attributes than the directory? d does not list the root.
 * 1, 0 or -errno. */
int apply_is_root_changed(const struct diff *d, int dirfd);

/* Call fn for each directory in which names must be made or removed and this user may not. The
 * number of them or -errno. */
ssize_t apply_find_obstacles(const struct diff *d, int dirfd,
			     void (*fn)(void *arg, const char *path), void *arg);

/* Extract a tar of diff_tar_write into the directory. At any moment each name shows its old object
 * or its new one, and a repeated call changes nothing more. Objects written after the tar was made
 * stay, and left is called for each. Attributes that cannot be set are skipped with a warning. Only
 * file systems mounted inside are synced. The first failure is named on standard error. 0 or
 * -errno. */
int apply_extract(int tar_fd, int dirfd, void (*left)(void *arg, const char *path), void *arg);
