/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "veneer/base/stats.h"

/* What the whole process counted. */
static inline uint64_t counter_total(enum stats_counter which)
{
	struct stats_values v;

	stats_read(NULL, &v);
	return v.counters[which];
}
