/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a server: as it makes it, and as `stats` and `top` get it. */
#pragma once

#include "veneer/server/mount_table.h"
#include "veneer/tools/report.h"

#define STATS_FETCH_ERR_SIZE 8192

/* Ask the server. The text, malloc'd, and what it says; release. -errno, and a sentence in err. */
int stats_fetch_report(char **ret_json, struct report *ret, char err[STATS_FETCH_ERR_SIZE]);
/* Leave of the text only the mount at this path, however it is called. 0, or -errno after a
 * sentence on standard error. */
int stats_fetch_pick(const char *path, char **json);
/* Make the report of a server on itself and its mounts, malloc'd. 0 or -ENOMEM. */
int stats_fetch_own(struct mount_table *mounts, char **ret_json);
/* The same for Prometheus. */
int stats_fetch_metrics(struct mount_table *mounts, char **ret_text);
