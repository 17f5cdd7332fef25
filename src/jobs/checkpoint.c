// SPDX-License-Identifier: Apache-2.0
#include "veneer/jobs/checkpoint.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/union/lookup.h"

#include <string.h>

#define INTERVAL_MS 5000

static void commit_all(struct union_fs *t)
{
	uint32_t id = NODE_TABLE_ROOT;
	struct inode *i;

	while ((i = inode_next_partial(t, &id))) {
		if (lookup_restore(t, i) == 0 &&
		    mapfile_pending(t->map, inode_partial_id(i)) != MAPFILE_CLEAN)
			cow_fsync_unasked(t, i);
		inode_unref(t, i);
	}
}

static void run(struct worker *me, void *arg)
{
	struct union_fs *t = arg;
	int r;

	stats_enter(t->stats);
	r = mapfile_prepare(t->map);
	if (r < 0)
		log_debug("cannot make the block map in advance: %s", strerror(-r));
	while (worker_wait(me, clock_ms() + INTERVAL_MS)) {
		if (!t->is_volatile && !t->can.has_true_extents)
			commit_all(t);
		/* A failure is logged there; the old log goes on, and the next interval tries
		 * again. */
		if (mapfile_wants_checkpoint(t->map))
			mapfile_checkpoint(t->map, false);
	}
}

int checkpoint_start(struct union_fs *t, struct worker **ret)
{
	return worker_start(run, t, ret);
}
