/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is, for this process and its kin, and how much of it is used: of the
 * control group with the least room among the own one and those above it that have a limit, or of
 * the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mem_usage {
	uint64_t limit, used; /* bytes; used: the page cache included */
	uint64_t cache; /* of it, what the kernel takes back for the asking */
	bool is_pressed; /* programs wait for memory, says the kernel */
};

/* Both kinds of control groups, and both at once. 0 or -errno: nothing can be read. */
int mem_usage_read(struct mem_usage *ret);
/* The same of other places than /proc and /sys/fs/cgroup. */
int mem_usage_read_at(const char *proc, const char *groups, struct mem_usage *ret);
/* How much of a hundred is used if of the cache that much counts, and the rest of it as free. */
unsigned mem_usage_percent(const struct mem_usage *m, uint64_t counted_cache);
/* Too little is left to read what nobody has asked for yet. */
bool mem_usage_is_short(const struct mem_usage *m);
