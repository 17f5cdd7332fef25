// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/singleflight.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <stddef.h>

static struct {
	mutex_t lock;
	pthread_cond_t ended;
	/* struct singleflight: as many as threads that are at something just now */
	GUARDED_BY(lock) struct list_link list;
	GUARDED_BY(lock) uint64_t last;
} flights = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ended = PTHREAD_COND_INITIALIZER,
	.list = { &flights.list, &flights.list },
};

static const struct singleflight *find_locked(const void *what) REQUIRES(flights.lock)
{
	for (struct list_link *l = flights.list.next; l != &flights.list; l = l->next) {
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

	LOCK_SCOPE(&flights.lock);
	other = find_locked(what);
	if (!other) {
		*t = (struct singleflight){ .what = what, .number = ++flights.last };
		list_add_tail(&flights.list, &t->link);
		return true;
	}
	/* The flight is gone once it is not found any more; a flight that is found then may be a
	 * later one. */
	number = other->number;
	while ((other = find_locked(what)) && other->number == number)
		pthread_cond_wait(&flights.ended, &flights.lock);
	return false;
}

void singleflight_end(struct singleflight *t)
{
	LOCK_SCOPE(&flights.lock);
	list_del(&t->link);
	pthread_cond_broadcast(&flights.ended);
}
