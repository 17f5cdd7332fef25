/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a directory and what is in it, beneath one directory, following no link. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* Remove a tree of any depth. Entries that resist stay, silently: meant for remains in a work
 * directory. */
void rmtree(int parent_fd, const char *name);
/* Does it stay? A directory that does is emptied likewise; where it is too deep it may move up. */
typedef bool rmtree_keep_fn(void *arg, int parent_fd, const char *name, const struct stat *st);
/* Remove all of a tree but what keep says yes to, and the directories that it is in. */
void rmtree_but(int parent_fd, const char *name, rmtree_keep_fn *keep, void *arg);
