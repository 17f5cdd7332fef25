/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a directory and its content, beneath one directory, following no link. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* Remove a tree of any depth. Entries that cannot be removed stay, silently: meant for leftovers in
 * a work directory. */
void rmtree(int parent_fd, const char *name);
/* Does the entry stay? A directory that stays is emptied all the same; if it is too deep it may
 * move up. */
typedef bool rmtree_keep_fn(void *arg, int parent_fd, const char *name, const struct stat *st);
/* Remove a tree except the entries that keep selects, and their directories. */
void rmtree_but(int parent_fd, const char *name, rmtree_keep_fn *keep, void *arg);
