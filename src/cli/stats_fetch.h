/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a server: fetched by `stats` and `top`, and made by the server. */
#pragma once

#include "veneer/server/mount_table.h"
#include "veneer/tools/report.h"

#define STATS_FETCH_ERR_SIZE 8192

/* Fetch the report of the server, as text (malloc'd) and parsed; release both. 0, or -errno and a
 * sentence in err. */
int stats_fetch_report(char **ret_json, struct report *ret, char err[STATS_FETCH_ERR_SIZE]);
/* Keep only the mount at this path in the text; another path to it is also accepted. 0, or -errno
 * after a sentence on standard error. */
int stats_fetch_pick(const char *path, char **json);
/* Make the report of this server and its mounts, malloc'd. 0 or -ENOMEM. */
int stats_fetch_own(struct mount_table *mounts, char **ret_json);
/* Make it for Prometheus. */
int stats_fetch_metrics(struct mount_table *mounts, char **ret_text);
