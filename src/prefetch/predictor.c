// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/predictor.h"

#include "veneer/base/minmax.h"

#include <stdbool.h>
#include <stdlib.h>

/* The general rate of an item weighs as many observations as this, against the ones at this very
 * distance. */
#define RATE_WEIGHT 1.0
/* ... and how many an item without history weighs as, which is as likely as not. */
#define PRIOR_WEIGHT 1.0
#define PRIOR_CHANCE 0.5

static unsigned history(unsigned starts)
{
	return MIN(starts, PREDICTOR_STARTS);
}

static uint64_t seen_in(const struct predictor_item *item, unsigned starts)
{
	return history(starts) == PREDICTOR_STARTS ? item->seen
						   : item->seen & ((1ull << history(starts)) - 1);
}

/* Of the times that it was as long away as it is now, how often did it come back right then? Few
 * such times are completed by how often it is touched at all. */
double predictor_chance(const struct predictor_item *item, unsigned starts)
{
	uint64_t seen = seen_in(item, starts);
	unsigned away, gap, hits = 0, returned = 0, waited = 0;
	double rate;

	if (!seen)
		return 0;
	away = (unsigned)__builtin_ctzll(seen) + 1;
	hits = (unsigned)__builtin_popcountll(seen);
	seen >>= away - 1;
	while (seen >>= 1) {
		gap = (unsigned)__builtin_ctzll(seen) + 1;
		returned += gap == away;
		waited += gap >= away;
		seen >>= gap - 1;
	}
	rate = (hits + PRIOR_WEIGHT * PRIOR_CHANCE) / (history(starts) + PRIOR_WEIGHT);
	return (returned + RATE_WEIGHT * rate) / (waited + RATE_WEIGHT);
}

static int by_chance(const void *a, const void *b, void *arg)
{
	const struct predictor_guess *g = a, *h = b;
	const struct predictor_item *items = arg, *i = &items[g->item], *k = &items[h->item];

	return COMPARE(h->chance, g->chance) ?: COMPARE(i->first_ms, k->first_ms)
	       ?: COMPARE(i->order, k->order) ?: COMPARE(g->item, h->item);
}

static bool has_returned(const struct predictor_item *item, unsigned starts)
{
	return __builtin_popcountll(seen_in(item, starts)) > 1;
}

size_t predictor_ask(const struct predictor_question *q, const struct predictor_item *items,
		     size_t n, struct predictor_guess *ret)
{
	size_t kept = 0, likely = 0;

	for (size_t i = 0; i < n; i++) {
		const double chance = predictor_chance(&items[i], q->starts);

		if (chance > q->bound)
			ret[likely++] = (struct predictor_guess){ i, chance };
	}
	qsort_r(ret, likely, sizeof(*ret), by_chance, (void *)items);
	for (size_t i = 0; i < likely; i++)
		if (kept < q->limit || has_returned(&items[ret[i].item], q->starts))
			ret[kept++] = ret[i];
	return kept;
}
