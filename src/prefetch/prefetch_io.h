/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the extents of a plan into the page cache of the lower layers, on a thread of the lowest
 * priority, some pieces at a time and in the plan's order. Reads only, leaves access times alone,
 * and ends by itself: when it is done, when memory gets short, or when it is told to. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/layer/image.h"
#include "veneer/prefetch/planner.h"

struct prefetch_io;

/* The image, the plan and the stats, which it counts for, outlive it. 0 or -errno. */
int prefetch_io_start(struct image *img, const struct plan *plan, struct stats *stats,
		      struct prefetch_io **ret);
/* Wait until it looks at none of them: for the read at hand at most. NULL is ignored. */
void prefetch_io_stop(struct prefetch_io *f);
