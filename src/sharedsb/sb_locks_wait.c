// SPDX-License-Identifier: Apache-2.0
/* Requests that wait for a lock, or are about to (invariant 5 of sb_locks.c). */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"

#include <stdlib.h>

static uint64_t hash_of(uint64_t number)
{
	return hash_key(&number, sizeof(number), 0);
}

int sb_locks_wait_begin(struct shared_sb *g, uint64_t unique)
{
	struct shared_sb_waiter *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct shared_sb_waiter){ .unique = unique };
	LOCK_SCOPE(&g->lock);
	for (size_t k = 0; k < SHARED_SB_INTERRUPTS; k++)
		w->is_interrupted |= g->interrupts[k] == unique;
	if (htab_insert(&g->waiters, &w->link, hash_of(unique)) < 0) {
		free(w);
		return -ENOMEM;
	}
	g->n_waiters++;
	return 0;
}

static struct shared_sb_waiter *waiter_locked(struct shared_sb *g, uint64_t unique)
{
	for (struct hlink *l = htab_first(&g->waiters, hash_of(unique)); l; l = htab_next(l))
		if (container_of(l, struct shared_sb_waiter, link)->unique == unique)
			return container_of(l, struct shared_sb_waiter, link);
	return NULL;
}

bool sb_locks_wait_at(struct shared_sb *g, uint64_t unique, uint32_t number)
{
	struct shared_sb_waiter *w;

	LOCK_SCOPE(&g->lock);
	w = waiter_locked(g, unique);
	if (w)
		w->number = number;
	return w && w->is_interrupted;
}

void sb_locks_wait_end(struct shared_sb *g, uint64_t unique)
{
	struct shared_sb_waiter *w;

	if (!g->n_waiters)
		return;
	LOCK_SCOPE(&g->lock);
	w = waiter_locked(g, unique);
	if (!w)
		return;
	htab_remove(&g->waiters, &w->link);
	g->n_waiters--;
	free(w);
}

uint32_t sb_locks_wait_interrupt(struct shared_sb *g, uint64_t unique)
{
	struct shared_sb_waiter *w;

	LOCK_SCOPE(&g->lock);
	w = waiter_locked(g, unique);
	if (w)
		w->is_interrupted = true;
	else
		g->interrupts[g->n_interrupts++ % SHARED_SB_INTERRUPTS] = unique;
	return w ? w->number : 0;
}
