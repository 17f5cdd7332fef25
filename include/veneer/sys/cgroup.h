/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups, of both kinds: a process goes to one of its own, so that neither the end nor the
 * limits of the group that it was started in are its. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CGROUP_OWN "veneer" /* what the own group is called */

/* The group that takes the place of the one at path ("/a/b", as in /proc/self/cgroup): the one
 * beside it ("/a/veneer"), so that what limits all around it still does; or wish, if there is one.
 * False: there is nothing to leave, or no way to tell. Pure. */
bool cgroup_target(const char *path, const char *wish, char ret[PATH_MAX]);

/* Go there in every hierarchy where this process may, making the groups that are missing. The
 * number of hierarchies in which it stays where it was though it had something to leave, and why in
 * the first of them. */
unsigned cgroup_leave(const char *wish, char *why, size_t why_size);
