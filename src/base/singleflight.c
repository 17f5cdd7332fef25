// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/singleflight.h"

#include "veneer/base/cleanup.h"

#include <stddef.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	/* guarded by lock */
	struct list_link
		list; /* struct singleflight: as many as threads that are at something just now */
	uint64_t last;
} turns = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ended = PTHREAD_COND_INITIALIZER,
	.list = { &turns.list, &turns.list },
};

static const struct singleflight *find_locked(const void *what)
{
	for (struct list_link *l = turns.list.next; l != &turns.list; l = l->next) {
		const struct singleflight *t = container_of(l, struct singleflight, link);

		if (t->what == what)
			return t;
	}
	return NULL;
}

bool singleflight_begin(struct singleflight *t, const void *what)
{
	const struct singleflight *other;
	uint64_t number;

	LOCK_SCOPE(&turns.lock);
	other = find_locked(what);
	if (!other) {
		*t = (struct singleflight){ .what = what, .number = ++turns.last };
		list_add_tail(&turns.list, &t->link);
		return true;
	}
	/* The flight is gone once it is not found any more; a flight that is found then may be a
	 * later one. */
	number = other->number;
	while ((other = find_locked(what)) && other->number == number)
		pthread_cond_wait(&turns.ended, &turns.lock);
	return false;
}

void singleflight_end(struct singleflight *t)
{
	LOCK_SCOPE(&turns.lock);
	list_del(&t->link);
	pthread_cond_broadcast(&turns.ended);
}
