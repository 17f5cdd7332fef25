// SPDX-License-Identifier: Apache-2.0
#include "veneer/turn.h"

#include "veneer/cleanup.h"

#include <stddef.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	/* guarded by lock */
	struct list_link list;	/* struct turn: as many as threads that are at something just now */
	uint64_t last;
} turns = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .list = { &turns.list, &turns.list },
};

static const struct turn *find_locked(const void *what)
{
	for (struct list_link *l = turns.list.next; l != &turns.list; l = l->next) {
		const struct turn *t = (const struct turn *)((const char *)l - offsetof(struct turn, link));

		if (t->what == what)
			return t;
	}
	return NULL;
}

bool turn_begin(struct turn *t, const void *what)
{
	const struct turn *other;
	uint64_t number;

	LOCK_SCOPE(&turns.lock);
	other = find_locked(what);
	if (!other) {
		*t = (struct turn){ .what = what, .number = ++turns.last };
		list_add_tail(&turns.list, &t->link);
		return true;
	}
	/* It is gone once it is not found any more; what is found then may be a later one. */
	number = other->number;
	while ((other = find_locked(what)) && other->number == number)
		pthread_cond_wait(&turns.ended, &turns.lock);
	return false;
}

void turn_end(struct turn *t)
{
	LOCK_SCOPE(&turns.lock);
	list_del(&t->link);
	pthread_cond_broadcast(&turns.ended);
}
