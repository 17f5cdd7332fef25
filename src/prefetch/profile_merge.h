/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a start to an image's history, and keeps that within its bounds. No file, no clock. */
#pragma once

#include "veneer/prefetch/profile.h"

/* img with one more start (or NULL: none), sorted by path. Each extent is there once. Items that
 * cannot matter to a prediction any more are not, and the rest is within the bounds of a file. *ret
 * has arrays of its own for files and items. All else, the paths as well, it borrows from the two.
 * 0 or -ENOMEM. */
int profile_merge(const struct profile_image *img, const struct profile_start *start,
		  struct profile_image *ret);
void profile_merge_release(struct profile_image *merged);
