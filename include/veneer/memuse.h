/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is, for this process and its kin, and how much of it is used: of the control group with the
 * least room among the own one and those above it that have a limit, or of the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct memuse {
	uint64_t limit, used;	/* bytes; used: the page cache included */
	uint64_t cache;		/* of it, what the kernel takes back for the asking */
	bool is_pressed;	/* programs wait for memory, says the kernel */
};

/* Both kinds of control groups, and both at once. 0 or -errno: nothing can be read. */
int memuse_read(struct memuse *ret);
/* The same of other places than /proc and /sys/fs/cgroup. */
int memuse_read_at(const char *proc, const char *groups, struct memuse *ret);
/* How much of a hundred is used if of the cache that much counts, and the rest of it as free. */
unsigned memuse_percent(const struct memuse *m, uint64_t counted_cache);
/* Too little is left to read what nobody has asked for yet. */
bool memuse_is_short(const struct memuse *m);
