/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a server prints on SIGUSR1: one line "# NAME: value" for each figure, as
 * fuse-overlayfs does. */
#pragma once

#include "veneer/mount/mount.h"

/* Sums over mounts; zero-initialised. */
struct sigusr1_stats {
	uint64_t mounts; /* number of mounts; set by the caller, for a server of several */
	uint64_t nodes, map_files, map_log_bytes, backing_files;
	bool has_upper, has_backing; /* of any mount */
};

void sigusr1_stats_add(struct sigusr1_stats *c, struct mount *m);
/* Print the sums and the counters of the process, to standard error or to the log. is_shared: a
 * server of several mounts, with their shared figures. Any thread. */
void sigusr1_stats_print(const struct sigusr1_stats *c, bool is_shared, bool to_log);
