// SPDX-License-Identifier: Apache-2.0
#include "veneer/jobs/checkpoint.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/data/cow.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <string.h>

#define CHECKPOINT_INTERVAL_S 5

struct checkpoint {
	struct union_fs *tree;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* guarded by lock */
	bool is_stopping;
};

/* Partial files of a dead server are committed like our own. */
static bool may_be_partial(struct union_fs *t, struct inode *i)
{
	if (i->type != DT_REG || i->is_stale)
		return false;
	return i->is_unresolved ? node_table_slot(t->nodes, i->id)->upper_ino
				: i->has_upper && i->src.id;
}

/* The next inode from id on that may be a partial file, referenced; NULL at the end. */
static struct inode *next_partial(struct union_fs *t, uint32_t *id)
{
	LOCK_SCOPE(&t->lock);
	for (; *id < node_table_end(t->nodes); (*id)++) {
		struct inode *i = node_table_object(t->nodes, *id);

		if (i && may_be_partial(t, i)) {
			i->refs++;
			(*id)++;
			return i;
		}
	}
	return NULL;
}

static void commit_all(struct checkpoint *c)
{
	uint32_t id = NODE_TABLE_ROOT;
	struct inode *i;

	while ((i = next_partial(c->tree, &id))) {
		if (lookup_restore(c->tree, i) == 0 &&
		    mapfile_pending(c->tree->map, i->src.id) != MAPFILE_CLEAN)
			cow_sync_unasked(c->tree, i);
		inode_unref(c->tree, i);
	}
}

static bool wait_interval(struct checkpoint *c)
{
	const int64_t until = clock_ms() + CHECKPOINT_INTERVAL_S * 1000;

	LOCK_SCOPE(&c->lock);
	while (!c->is_stopping)
		if (clock_wait(&c->wake, &c->lock, until) == ETIMEDOUT)
			break;
	return !c->is_stopping;
}

static void *run(void *arg)
{
	struct checkpoint *c = arg;
	struct union_fs *t = c->tree;
	int r;

	stats_enter(t->stats);
	r = mapfile_prepare(t->map);
	if (r < 0)
		log_debug("no map was made ahead: %s", strerror(-r));
	while (wait_interval(c)) {
		if (!t->is_volatile && !t->can.has_true_extents)
			commit_all(c);
		/* A failure is logged there; the old log goes on, and the next interval tries
		 * again. */
		if (mapfile_wants_checkpoint(t->map))
			mapfile_checkpoint(t->map, false);
	}
	return NULL;
}

int checkpoint_start(struct union_fs *t, struct checkpoint **ret)
{
	struct checkpoint *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->tree = t;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake, NULL);
	r = -pthread_create(&c->thread, NULL, run, c);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void checkpoint_stop(struct checkpoint *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->is_stopping = true;
	pthread_cond_broadcast(&c->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
