/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes of names and of O_PATH descriptors, and size-then-read loops. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All take (dirfd, name): name relative to dirfd, a final symlink not followed; an empty name is
 * dirfd itself, which may be O_PATH. Uses setxattrat(2) and its relatives (Linux 6.13), or else
 * /proc/self/fd. Results and errors as of getxattr(2), errors as -errno. */
ssize_t xattr_get(int dirfd, const char *name, const char *attr, void *value, size_t size);
int xattr_set(int dirfd, const char *name, const char *attr, const void *value, size_t size,
	      int flags);
int xattr_remove(int dirfd, const char *name, const char *attr);
ssize_t xattr_list(int dirfd, const char *name, char *list, size_t size);

/* A whole value or list in a malloc'd buffer, which the caller owns; length or -errno. An empty
 * list gives 0 and *ret_list NULL. */
ssize_t xattr_get_alloc(int dirfd, const char *name, const char *attr, char **ret_value);
ssize_t xattr_list_alloc(int dirfd, const char *name, char **ret_list);
/* Copy the attributes that `counts` selects (NULL: all), except those of IMA and EVM. 0 or
 * -errno. */
int xattr_copy(int from, int to, bool (*counts)(const char *attr));
