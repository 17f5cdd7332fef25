/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a directory and what is in it, beneath one directory, following no link. */
#pragma once

/* Remove a tree of any depth. Entries that resist stay, silently: meant for remains in a work
 * directory. */
void rmtree(int parent_fd, const char *name);
