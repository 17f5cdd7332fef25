/* SPDX-License-Identifier: Apache-2.0 */
/* Mount points as people name them, for commands that work on what lies behind: as the kernel has
 * them, without asking the mount itself, whose server may be dead. */
#pragma once

#include "veneer/tools/report.h"

#include <stdbool.h>

/* The path as /proc/self/mounts has it, malloc'd; NULL when out of memory or below a directory that
 * is not there. */
char *mount_find_path(const char *given);
/* A mount of veneer is on top there. */
bool mount_find_is_ours(const char *path);

/* Ask the server of the mount at this place for its report, alone in *ret; release. 0: it is no
 * mount point of veneer; 1; -errno after a sentence on standard error, for command, which would
 * like an upper. */
int mount_find_look(const char *given, const char *command, struct report *ret);
/* ... which has an upper: its path, malloc'd. The same results. */
int mount_find_upper(const char *given, const char *command, char **ret);
/* NAME=PATH as -o takes it, malloc'd; name ends with its =. NULL when out of memory. */
char *mount_find_path_option(const char *name, const char *path);
/* -o for this mount: its lower layers and its upper, malloc'd. with_upper: the latter too. NULL
 * when out of memory. */
char *mount_find_options(const struct report_mount *m, bool with_upper);
