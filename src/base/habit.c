// SPDX-License-Identifier: Apache-2.0
#include "veneer/habit.h"

#include "veneer/cleanup.h"

#include <stdbool.h>
#include <string.h>

enum state {
	UNKNOWN,
	PROBED,		/* its first listing had a name that it has not asked for */
	NAMES,
	ALL,
};

void habit_init(struct habits *h)
{
	memset(h, 0, sizeof(*h));
	pthread_mutex_init(&h->lock, NULL);
}

void habit_release(struct habits *h)
{
	pthread_mutex_destroy(&h->lock);
}

static uint8_t *state_locked(struct habits *h, uint32_t caller)
{
	unsigned k = caller % HABIT_CALLERS;

	if (h->callers[k].caller != caller) {
		h->callers[k].caller = caller;
		h->callers[k].state = UNKNOWN;
	}
	return &h->callers[k].state;
}

/* Names are looked up after all. */
static bool is_useless_locked(const struct habits *h)
{
	return h->nwanted > h->nbare / 4 + HABIT_SLACK;
}

enum habit_listing habit_begins(struct habits *h, uint32_t caller)
{
	uint8_t *state;

	LOCK_SCOPE(&h->lock);
	if (is_useless_locked(h))
		return HABIT_LIST_ALL;
	state = state_locked(h, caller);
	if (*state == UNKNOWN)
		return HABIT_LIST_PROBE;
	if (*state == PROBED)
		*state = NAMES;
	return *state == NAMES ? HABIT_LIST_NAMES : HABIT_LIST_ALL;
}

enum habit_listing habit_goes_on(struct habits *h, uint32_t caller)
{
	LOCK_SCOPE(&h->lock);
	return !is_useless_locked(h) && *state_locked(h, caller) == NAMES ? HABIT_LIST_NAMES : HABIT_LIST_ALL;
}

void habit_listed(struct habits *h, uint32_t caller, enum habit_listing listing, size_t nbare)
{
	uint8_t *state;

	if (!nbare)
		return;
	LOCK_SCOPE(&h->lock);
	h->nbare += nbare;
	state = state_locked(h, caller);
	if (listing == HABIT_LIST_PROBE && *state == UNKNOWN)
		*state = PROBED;
}

void habit_wants(struct habits *h, uint32_t caller)
{
	LOCK_SCOPE(&h->lock);
	h->nwanted++;
	*state_locked(h, caller) = ALL;
}
