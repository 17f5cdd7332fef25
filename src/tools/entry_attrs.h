/* SPDX-License-Identifier: Apache-2.0 */
/* Compares owner, mode and extended attributes of two objects, without private attributes of veneer
 * or the host. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* Is the attribute part of the object's visible state? */
bool entry_attrs_counts(const char *name);
/* Do both descriptors, which may be O_PATH, have the same attributes? 1, 0 or -errno. */
int entry_attrs_same_xattrs(int a, int b);
/* Do they have the same owner and mode, too? x, y: stat of a and b. */
int entry_attrs_same(int a, const struct stat *x, int b, const struct stat *y);
