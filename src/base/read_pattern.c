// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/read_pattern.h"

void read_pattern_note(struct read_pattern *p, uint64_t off, size_t len)
{
	const uint64_t end = atomic_load_explicit(&p->end, memory_order_relaxed);
	const uint32_t jumps = atomic_load_explicit(&p->jumps, memory_order_relaxed);

	if (off != end && len <= READ_PATTERN_SMALL_BYTES && jumps < READ_PATTERN_JUMPS)
		atomic_store_explicit(&p->jumps, jumps + 1, memory_order_relaxed);
	atomic_store_explicit(&p->end, off + len, memory_order_relaxed);
}

bool read_pattern_is_random(const struct read_pattern *p)
{
	return atomic_load_explicit(&p->jumps, memory_order_relaxed) >= READ_PATTERN_JUMPS;
}
