/* SPDX-License-Identifier: Apache-2.0 */
/* Finds mounts by the path that a user gives. Paths are compared in the form of the kernel, without
 * a lookup in the mount itself, as its server may be dead. */
#pragma once

#include "veneer/tools/report.h"

#include <stdbool.h>

/* The path in the form of /proc/self/mounts, malloc'd. NULL: no memory, or a missing directory
 * above it. */
char *mount_find_path(const char *given);
/* Is the topmost mount at this path one of veneer? */
bool mount_find_is_ours(const char *path);

/* Ask the server for the report of the mount at this path, alone in *ret; release it. 0: not a
 * mount point of veneer; 1; -errno after a sentence on standard error. command: needs an upper; for
 * the sentence. */
int mount_find_look(const char *given, const char *command, struct report *ret);
/* mount_find_look for a mount with an upper, whose path is returned, malloc'd. Same results. */
int mount_find_upper(const char *given, const char *command, char **ret);
/* NAME=PATH in the syntax of -o, malloc'd; name ends with "=". NULL: no memory. */
char *mount_find_path_option(const char *name, const char *path);
/* The -o list of this mount: its lower layers, and with_upper its upper; malloc'd. NULL: no
 * memory. */
char *mount_find_options(const struct report_mount *m, bool with_upper);
