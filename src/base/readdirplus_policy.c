// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/readdirplus_policy.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <stdbool.h>
#include <string.h>

enum state {
	UNKNOWN,
	PROBED, /* its first listing had a name that it has not asked for */
	NAMES,
	ALL,
};

void readdirplus_policy_init(struct readdirplus_policy *h)
{
	memset(h, 0, sizeof(*h));
	mutex_init(&h->lock);
}

void readdirplus_policy_release(struct readdirplus_policy *h)
{
	mutex_destroy(&h->lock);
}

static uint8_t *state_locked(struct readdirplus_policy *h, uint32_t caller) REQUIRES(h->lock)
{
	unsigned k = caller % READDIRPLUS_POLICY_CALLERS;

	if (h->callers[k].caller != caller) {
		h->callers[k].caller = caller;
		h->callers[k].state = UNKNOWN;
	}
	return &h->callers[k].state;
}

/* Names are looked up after all. */
static bool is_useless_locked(const struct readdirplus_policy *h) REQUIRES(h->lock)
{
	return h->nwanted > h->n_names_only / 4 + READDIRPLUS_POLICY_SLACK;
}

enum readdirplus_policy_listing readdirplus_policy_begins(struct readdirplus_policy *h,
							  uint32_t caller)
{
	uint8_t *state;

	LOCK_SCOPE(&h->lock);
	if (is_useless_locked(h))
		return READDIRPLUS_POLICY_LIST_ALL;
	state = state_locked(h, caller);
	if (*state == UNKNOWN)
		return READDIRPLUS_POLICY_LIST_PROBE;
	if (*state == PROBED)
		*state = NAMES;
	return *state == NAMES ? READDIRPLUS_POLICY_LIST_NAMES : READDIRPLUS_POLICY_LIST_ALL;
}

enum readdirplus_policy_listing readdirplus_policy_goes_on(struct readdirplus_policy *h,
							   uint32_t caller)
{
	LOCK_SCOPE(&h->lock);
	return !is_useless_locked(h) && *state_locked(h, caller) == NAMES
		       ? READDIRPLUS_POLICY_LIST_NAMES
		       : READDIRPLUS_POLICY_LIST_ALL;
}

void readdirplus_policy_listed(struct readdirplus_policy *h, uint32_t caller,
			       enum readdirplus_policy_listing listing, size_t n_names_only)
{
	uint8_t *state;

	if (!n_names_only)
		return;
	LOCK_SCOPE(&h->lock);
	h->n_names_only += n_names_only;
	state = state_locked(h, caller);
	if (listing == READDIRPLUS_POLICY_LIST_PROBE && *state == UNKNOWN)
		*state = PROBED;
}

void readdirplus_policy_wants(struct readdirplus_policy *h, uint32_t caller)
{
	LOCK_SCOPE(&h->lock);
	h->nwanted++;
	*state_locked(h, caller) = ALL;
}
