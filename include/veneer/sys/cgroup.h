/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups, v1 and v2: moves a process to a group of its own, so that the end and the limits
 * of the group that started it do not apply to it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CGROUP_OWN "veneer" /* name of the own group */

/* The group to move to from the one at path ("/a/b", as in /proc/self/cgroup). It is the sibling
 * ("/a/veneer"), so that the limits above both still apply; or wish, if not NULL. False: there is
 * no group to leave, or it is unknown. Pure. */
bool cgroup_target(const char *path, const char *wish, char ret[PATH_MAX]);

/* Move there in every hierarchy where this process may, and make missing groups. Returns the number
 * of hierarchies that it could not leave; why: the reason in the first of them. */
unsigned cgroup_leave(const char *wish, char *why, size_t why_size);
