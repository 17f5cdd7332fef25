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

/* Carry a tar of diff_tar_write out in the directory. What stands at a name is what it was or what
 * it is to be, at any moment; done again, it changes nothing more. Nothing is synced. The directory
 * becomes the current one. Names the first that fails on standard error. 0 or -errno. */
int apply_extract(int tar_fd, int dirfd);
