// SPDX-License-Identifier: Apache-2.0
#include "veneer/heat.h"

#include "veneer/htab.h"

#include <string.h>

/* How many times its population the cache remembers what left it. */
#define GHOST_SPAN 2

void heat_init(struct heat *h, size_t budget)
{
	memset(h, 0, sizeof(*h));
	for (int q = 0; q < HEAT_QUEUES; q++)
		list_init(&h->order[q]);
	h->budget = budget;
}

void heat_set_budget(struct heat *h, size_t budget)
{
	h->budget = budget;
}

static bool take_ghost(struct heat *h, uint64_t key)
{
	size_t at = key % HEAT_GHOSTS;
	bool is_young = h->ghosts[at].clock && h->clock - h->ghosts[at].clock <= GHOST_SPAN * (h->count + 1);

	if (h->ghosts[at].key != key || !is_young)
		return false;
	h->ghosts[at].clock = 0;
	return true;
}

static void enqueue(struct heat *h, struct heat_entry *e, enum heat_queue queue)
{
	e->queue = queue;
	h->bytes[queue] += e->bytes;
	list_add_tail(&h->order[queue], &e->order);
}

static void dequeue(struct heat *h, struct heat_entry *e)
{
	h->bytes[e->queue] -= e->bytes;
	list_del(&e->order);
}

void heat_add(struct heat *h, struct heat_entry *e, uint64_t key, size_t bytes)
{
	e->key = key;
	e->bytes = bytes;
	enqueue(h, e, take_ghost(h, key) ? HEAT_PROTECTED : HEAT_PROBATION);
	h->count++;
}

void heat_touch(struct heat *h, struct heat_entry *e, bool is_again)
{
	if (e->queue == HEAT_PROBATION && !is_again)
		return;
	dequeue(h, e);
	enqueue(h, e, HEAT_PROTECTED);
}

void heat_remove(struct heat *h, struct heat_entry *e, bool is_evicted)
{
	dequeue(h, e);
	h->count--;
	if (!is_evicted || e->queue != HEAT_PROBATION)
		return;
	h->clock++;
	h->ghosts[e->key % HEAT_GHOSTS].key = e->key;
	h->ghosts[e->key % HEAT_GHOSTS].clock = h->clock;
}

static struct heat_entry *first_of(const struct heat *h, enum heat_queue queue,
				   bool (*may_go)(const struct heat_entry *e))
{
	const struct list_link *head = &h->order[queue];

	for (struct list_link *l = head->next; l != head; l = l->next) {
		struct heat_entry *e = container_of(l, struct heat_entry, order);

		if (may_go(e))
			return e;
	}
	return NULL;
}

struct heat_entry *heat_victim(const struct heat *h, bool (*may_go)(const struct heat_entry *e))
{
	enum heat_queue queue = h->bytes[HEAT_PROBATION] > h->budget / 4 ? HEAT_PROBATION : HEAT_PROTECTED;
	struct heat_entry *e = first_of(h, queue, may_go);

	return e ? e : first_of(h, queue == HEAT_PROBATION ? HEAT_PROTECTED : HEAT_PROBATION, may_go);
}
