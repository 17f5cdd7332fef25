/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the changes of a layer over into the directory that it lies on: what both sides changed
 * is found first, and the changes come from a tar, which can be read again after a kill. */
#pragma once

#include "veneer/tools/diff.h"

#include <time.h>

/* Calls fn for each path that d changes and that was changed at the directory, too, at `since` or
 * later by its change time, which programs cannot set. d lists all (diff_read), on that directory
 * alone. The number of them or -errno. */
ssize_t apply_find_conflicts(const struct diff *d, int dirfd, const struct timespec *since,
			     void (*fn)(void *arg, const char *path), void *arg);

/* Has the root another mode, or other attributes, than the directory? No change of d says so. 1, 0
 * or -errno. */
int apply_is_root_changed(const struct diff *d, int dirfd);

/* Calls fn for each directory in which names are to be made or removed and this user may not. The
 * number of them or -errno. */
ssize_t apply_find_obstacles(const struct diff *d, int dirfd,
			     void (*fn)(void *arg, const char *path), void *arg);

/* Carry a tar of diff_tar_write out in the directory. What stands at a name is what it was or what
 * it is to be, at any moment; done again, it changes nothing more. What was written there after the
 * tar was is left as it is, and left called for it. Attributes that cannot be given are left out,
 * after a warning. Nothing is synced but what is mounted inside. Names the first that fails on
 * standard error. 0 or -errno. */
int apply_extract(int tar_fd, int dirfd, void (*left)(void *arg, const char *path), void *arg);
