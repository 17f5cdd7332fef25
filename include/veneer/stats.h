/* SPDX-License-Identifier: Apache-2.0 */
/* What happened since the process began, counted: bumped by any thread without a lock, read for SIGUSR1. */
#pragma once

#include <stdint.h>

enum stats_counter {
	STATS_COPYUPS,		/* lower entries that got an entry in the upper */
	STATS_COPYUP_BYTES,	/* of file data copied for them */
	STATS_MAP_RECORDS,	/* appended to the log of the upper's map */
	STATS_FD_HITS,		/* a descriptor was wanted and was open */
	STATS_FD_MISSES,	/* ... and had to be opened */
	STATS_WINDOW_HITS,	/* blocks of lower files that were asked of the block cache and were there */
	STATS_WINDOW_MISSES,	/* ... and had to be brought in */
	STATS_WINDOW_EVICTIONS,	/* windows unmapped for want of room */
	STATS_COUNTERS
};

void stats_add(enum stats_counter which, uint64_t n);
uint64_t stats_get(enum stats_counter which);

/* A request of the kernel, by its FUSE opcode; unknown ones are counted together. */
void stats_count_request(uint32_t opcode);
uint64_t stats_requests(void);

/* Call line for each counter: all of the above, then the kinds of request that came at all. */
void stats_each(void (*line)(void *arg, const char *name, uint64_t value), void *arg);
