/* SPDX-License-Identifier: Apache-2.0 */
/* Owner, mode and extended attributes of two objects, but for what veneer or the host keeps in
 * attributes for itself. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* An attribute that says something of the object to programs. */
bool entry_attrs_counts(const char *name);
/* Have both descriptors, which may be O_PATH, the same attributes? 1, 0 or -errno. */
int entry_attrs_same_xattrs(int a, int b);
/* Have they the same owner and mode, too? x, y: of a and b. */
int entry_attrs_same(int a, const struct stat *x, int b, const struct stat *y);
