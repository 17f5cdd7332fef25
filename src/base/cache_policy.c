// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/cache_policy.h"

#include "veneer/base/htab.h"

#include <string.h>

/* The cache remembers as many evicted keys as this times its population. */
#define GHOST_SPAN 2

void cache_policy_init(struct cache_policy *h, size_t budget)
{
	memset(h, 0, sizeof(*h));
	for (int q = 0; q < CACHE_POLICY_QUEUES; q++)
		list_init(&h->order[q]);
	h->budget = budget;
}

void cache_policy_set_budget(struct cache_policy *h, size_t budget)
{
	h->budget = budget;
}

static bool take_ghost(struct cache_policy *h, uint64_t key)
{
	size_t at = key % CACHE_POLICY_GHOSTS;
	bool is_young = h->ghosts[at].clock &&
			h->clock - h->ghosts[at].clock <= GHOST_SPAN * (h->count + 1);

	if (h->ghosts[at].key != key || !is_young)
		return false;
	h->ghosts[at].clock = 0;
	return true;
}

static void enqueue(struct cache_policy *h, struct cache_policy_entry *e,
		    enum cache_policy_queue queue)
{
	e->queue = queue;
	h->bytes[queue] += e->bytes;
	list_add_tail(&h->order[queue], &e->order);
}

static void dequeue(struct cache_policy *h, struct cache_policy_entry *e)
{
	h->bytes[e->queue] -= e->bytes;
	list_del(&e->order);
}

void cache_policy_add(struct cache_policy *h, struct cache_policy_entry *e, uint64_t key,
		      size_t bytes)
{
	e->key = key;
	e->bytes = bytes;
	enqueue(h, e, take_ghost(h, key) ? CACHE_POLICY_PROTECTED : CACHE_POLICY_PROBATION);
	h->count++;
}

void cache_policy_touch(struct cache_policy *h, struct cache_policy_entry *e, bool is_again)
{
	if (e->queue == CACHE_POLICY_PROBATION && !is_again)
		return;
	dequeue(h, e);
	enqueue(h, e, CACHE_POLICY_PROTECTED);
}

void cache_policy_remove(struct cache_policy *h, struct cache_policy_entry *e, bool is_evicted)
{
	dequeue(h, e);
	h->count--;
	if (!is_evicted || e->queue != CACHE_POLICY_PROBATION)
		return;
	h->clock++;
	h->ghosts[e->key % CACHE_POLICY_GHOSTS].key = e->key;
	h->ghosts[e->key % CACHE_POLICY_GHOSTS].clock = h->clock;
}

static struct cache_policy_entry *first_of(const struct cache_policy *h,
					   enum cache_policy_queue queue,
					   bool (*may_go)(const struct cache_policy_entry *e))
{
	const struct list_link *head = &h->order[queue];

	for (struct list_link *l = head->next; l != head; l = l->next) {
		struct cache_policy_entry *e = container_of(l, struct cache_policy_entry, order);

		if (may_go(e))
			return e;
	}
	return NULL;
}

struct cache_policy_entry *cache_policy_victim(const struct cache_policy *h,
					       bool (*may_go)(const struct cache_policy_entry *e))
{
	enum cache_policy_queue queue = h->bytes[CACHE_POLICY_PROBATION] > h->budget / 4
						? CACHE_POLICY_PROBATION
						: CACHE_POLICY_PROTECTED;
	struct cache_policy_entry *e = first_of(h, queue, may_go);

	return e ? e
		 : first_of(h,
			    queue == CACHE_POLICY_PROBATION ? CACHE_POLICY_PROTECTED
							    : CACHE_POLICY_PROBATION,
			    may_go);
}
