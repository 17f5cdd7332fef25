// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/worker.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"

#include <stdlib.h>

struct worker {
	pthread_t thread;
	void (*fn)(struct worker *me, void *arg);
	void *arg;
	mutex_t lock;
	pthread_cond_t wake;
	GUARDED_BY(lock) bool is_woken, is_stopping;
};

static void *run(void *arg)
{
	struct worker *w = arg;

	w->fn(w, w->arg);
	return NULL;
}

int worker_start(void (*fn)(struct worker *me, void *arg), void *arg, struct worker **ret)
{
	struct worker *w = malloc(sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	*w = (struct worker){ .fn = fn,
			      .arg = arg,
			      .lock = PTHREAD_MUTEX_INITIALIZER,
			      .wake = PTHREAD_COND_INITIALIZER };
	r = -pthread_create(&w->thread, NULL, run, w);
	if (r < 0)
		free(w);
	else
		*ret = w;
	return r;
}

bool worker_wait(struct worker *me, int64_t until_ms)
{
	LOCK_SCOPE(&me->lock);
	while (!me->is_stopping && !me->is_woken && clock_ms() < until_ms)
		if (until_ms == WORKER_NO_LIMIT)
			pthread_cond_wait(&me->wake, &me->lock);
		else
			clock_wait(&me->wake, &me->lock, until_ms);
	me->is_woken = false;
	return !me->is_stopping;
}

static void ring(struct worker *w, bool is_stopping)
{
	LOCK_SCOPE(&w->lock);
	w->is_woken = true;
	w->is_stopping |= is_stopping;
	pthread_cond_signal(&w->wake);
}

void worker_wake(struct worker *w)
{
	if (w)
		ring(w, false);
}

void worker_stop(struct worker *w)
{
	if (!w)
		return;
	ring(w, true);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	mutex_destroy(&w->lock);
	free(w);
}
