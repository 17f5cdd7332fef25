/* SPDX-License-Identifier: Apache-2.0 */
/* Total and used memory of this process's surroundings: of the control group with the least room
 * among its own and those above with a limit, or of the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mem_usage {
	uint64_t limit, used; /* bytes; used includes the page cache */
	uint64_t cache; /* page cache within used, which the kernel can reclaim */
	bool is_pressed; /* the kernel reports that programs wait for memory */
};

/* Control groups v1, v2, and both at once. 0 or -errno: nothing can be read. */
int mem_usage_read(struct mem_usage *ret);
/* The same with other paths than /proc and /sys/fs/cgroup. */
int mem_usage_read_at(const char *proc, const char *groups, struct mem_usage *ret);
/* Used percentage, with counted_cache bytes of the cache as used and the rest of it as free. */
unsigned mem_usage_percent(const struct mem_usage *m, uint64_t counted_cache);
/* Is too little left for reading data ahead of requests? */
bool mem_usage_is_short(const struct mem_usage *m);
