// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/predictor.h"

#include "veneer/base/minmax.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The general rate of an item weighs as many observations as this, against the ones at this very
 * distance. */
#define RATE_WEIGHT 1.0
/* ... and how many an item without history weighs as, which is as likely as not. */
#define PRIOR_WEIGHT 1.0
#define PRIOR_CHANCE 0.5

static const char *const names[PREDICTOR_KINDS] = { "default", "latest", "draw" };

enum predictor_kind predictor_by_name(const char *name)
{
	int kind = 0;

	while (kind < PREDICTOR_KINDS && strcmp(names[kind], name) != 0)
		kind++;
	return (enum predictor_kind)kind;
}

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

/* ---- orders ---- */

static int by_chance(const void *a, const void *b, void *arg)
{
	const struct predictor_guess *g = a, *h = b;
	const struct predictor_item *items = arg, *i = &items[g->item], *k = &items[h->item];

	return COMPARE(h->chance, g->chance) ?: COMPARE(i->first_ms, k->first_ms)
	       ?: COMPARE(i->order, k->order) ?: COMPARE(g->item, h->item);
}

static int by_last_touch(const void *a, const void *b, void *arg)
{
	const struct predictor_guess *g = a, *h = b;
	const struct predictor_item *items = arg, *i = &items[g->item], *k = &items[h->item];
	const int ago_i = i->seen ? __builtin_ctzll(i->seen) : 64,
		  ago_k = k->seen ? __builtin_ctzll(k->seen) : 64;

	return COMPARE(ago_i, ago_k) ?: COMPARE(k->order, i->order) ?: COMPARE(g->item, h->item);
}

/* ---- the three ---- */

static bool has_returned(const struct predictor_item *item, unsigned starts)
{
	return __builtin_popcountll(seen_in(item, starts)) > 1;
}

static size_t ask_default(const struct predictor_question *q, const struct predictor_item *items,
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

static size_t ask_latest(const struct predictor_question *q, const struct predictor_item *items,
			 size_t n, struct predictor_guess *ret)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = (struct predictor_guess){ i, 1 };
	qsort_r(ret, n, sizeof(*ret), by_last_touch, (void *)items);
	return MIN(n, q->limit);
}

static double next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Without putting back: a drawn item goes to the front. */
static size_t ask_draw(const struct predictor_question *q, const struct predictor_item *items,
		       size_t n, struct predictor_guess *ret)
{
	const size_t wanted = MIN(n, q->limit);
	uint64_t state = q->seed;
	double sum = 0, left;

	for (size_t i = 0; i < n; i++) {
		ret[i] = (struct predictor_guess){ i, 0 };
		sum += items[i].count;
	}
	left = sum;
	for (size_t k = 0; k < wanted; k++) {
		double at = next_random(&state) * left;
		size_t i = k;

		while (i + 1 < n && at >= items[ret[i].item].count)
			at -= items[ret[i++].item].count;

		const struct predictor_guess drawn = { ret[i].item,
						       sum > 0 ? items[ret[i].item].count / sum
							       : 0 };

		left -= items[drawn.item].count;
		ret[i] = ret[k];
		ret[k] = drawn;
	}
	qsort_r(ret, wanted, sizeof(*ret), by_chance, (void *)items);
	return wanted;
}

size_t predictor_ask(const struct predictor_question *q, const struct predictor_item *items,
		     size_t n, struct predictor_guess *ret)
{
	static size_t (*const ask[PREDICTOR_KINDS])(const struct predictor_question *q,
						    const struct predictor_item *items, size_t n,
						    struct predictor_guess *ret) = {
		[PREDICTOR_DEFAULT] = ask_default,
		[PREDICTOR_LATEST] = ask_latest,
		[PREDICTOR_DRAW] = ask_draw,
	};

	return q->starts && n ? ask[q->kind](q, items, n, ret) : 0;
}
