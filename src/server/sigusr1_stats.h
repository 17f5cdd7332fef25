/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a server prints on SIGUSR1: a line "# NAME: value" for each figure, as
 * fuse-overlayfs does. */
#pragma once

#include "veneer/mount/mount.h"

/* Figures of mounts, added up. Zero-initialised: none. */
struct sigusr1_stats {
	uint64_t mounts; /* for a server of several: the caller's to set */
	uint64_t nodes, map_files, map_log_bytes, backing_files;
	bool has_upper, has_backing; /* some mount */
};

void sigusr1_stats_add(struct sigusr1_stats *c, struct mount *m);
/* The sums, and what the process has counted; is_shared: of a server of several mounts, and what
 * those share. To standard error, or to the log. Any thread. */
void sigusr1_stats_print(const struct sigusr1_stats *c, bool is_shared, bool to_log);
