// SPDX-License-Identifier: Apache-2.0
/* The answers of three predictors to a trace: veneer's own, and the two of DPSO (Jiang et al.
 * 2021), to compare with.
 *
 *	bench-predict default|latest|draw N [SEED] <TRACE
 *
 * Each line of the trace is one start: the things that it touched, as numbers below 16384 in the
 * order of their first touch. For each start one line comes out: the things that were predicted
 * from the lines before it, likeliest first.
 *
 * default  as veneer predicts: N bounds the things taken on trust
 * latest   the N that were touched last, the last one first
 * draw     N drawn, each as likely as it was touched often (Algorithm 1) */
#include "veneer/base/minmax.h"
#include "veneer/prefetch/predictor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THINGS_MAX 16384
#define BOUND	   0.5
#define STEP_MS	   1 /* the trace has an order, and no times */

enum kind { DEFAULT, LATEST, DRAW, KINDS };

static struct predictor_item known[THINGS_MAX]; /* by number; `count` 0: not touched yet */
static size_t number[THINGS_MAX]; /* of the touched, in the order of their first touch */
static size_t nknown;

/* ---- DPSO's ---- */

static int by_last_touch(const void *a, const void *b)
{
	const struct predictor_guess *g = a, *h = b;
	const struct predictor_item *i = &known[g->item], *k = &known[h->item];
	const int ago_i = i->seen ? __builtin_ctzll(i->seen) : 64,
		  ago_k = k->seen ? __builtin_ctzll(k->seen) : 64;

	return COMPARE(ago_i, ago_k) ?: COMPARE(k->order, i->order) ?: COMPARE(g->item, h->item);
}

static int by_chance(const void *a, const void *b)
{
	const struct predictor_guess *g = a, *h = b;
	const struct predictor_item *i = &known[g->item], *k = &known[h->item];

	return COMPARE(h->chance, g->chance) ?: COMPARE(i->order, k->order)
	       ?: COMPARE(g->item, h->item);
}

static size_t ask_latest(size_t limit, struct predictor_guess *ret)
{
	for (size_t i = 0; i < nknown; i++)
		ret[i] = (struct predictor_guess){ number[i], 1 };
	qsort(ret, nknown, sizeof(*ret), by_last_touch);
	return MIN(nknown, limit);
}

static double next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Without putting back: a drawn thing goes to the front. */
static size_t ask_draw(size_t limit, uint64_t seed, struct predictor_guess *ret)
{
	const size_t wanted = MIN(nknown, limit);
	uint64_t state = seed;
	double sum = 0, left;

	for (size_t i = 0; i < nknown; i++) {
		ret[i] = (struct predictor_guess){ number[i], 0 };
		sum += known[number[i]].count;
	}
	left = sum;
	for (size_t k = 0; k < wanted; k++) {
		double at = next_random(&state) * left;
		size_t i = k;

		while (i + 1 < nknown && at >= known[ret[i].item].count)
			at -= known[ret[i++].item].count;

		const struct predictor_guess drawn = { ret[i].item,
						       known[ret[i].item].count / sum };

		left -= known[drawn.item].count;
		ret[i] = ret[k];
		ret[k] = drawn;
	}
	qsort(ret, wanted, sizeof(*ret), by_chance);
	return wanted;
}

/* ---- veneer's ---- */

static size_t ask_default(unsigned starts, size_t limit, struct predictor_guess *ret)
{
	static struct predictor_item items[THINGS_MAX];
	const struct predictor_question q = { .starts = starts, .limit = limit, .bound = BOUND };
	size_t n;

	for (size_t i = 0; i < nknown; i++)
		items[i] = known[number[i]];
	n = predictor_ask(&q, items, nknown, ret);
	for (size_t i = 0; i < n; i++)
		ret[i].item = number[ret[i].item];
	return n;
}

/* ---- the trace ---- */

static void learn(char *line)
{
	char *rest = NULL;
	uint32_t order = 0;

	for (size_t k = 0; k < nknown; k++)
		known[number[k]].seen <<= 1;
	for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		const size_t thing = strtoul(word, NULL, 10);
		struct predictor_item *item = &known[thing];

		if (thing >= THINGS_MAX || item->seen & 1)
			continue;
		if (!item->count)
			number[nknown++] = thing;
		item->seen |= 1;
		item->count++;
		item->first_ms = order * STEP_MS;
		item->order = order++;
	}
}

/* KINDS for another word. */
static enum kind kind_of(const char *name)
{
	static const char *const names[KINDS] = { "default", "latest", "draw" };
	int kind = 0;

	while (kind < KINDS && strcmp(names[kind], name) != 0)
		kind++;
	return (enum kind)kind;
}

int main(int argc, char **argv)
{
	static struct predictor_guess guesses[THINGS_MAX];
	char *line = NULL;
	size_t size = 0, limit, n;
	enum kind kind;
	uint64_t seed;

	kind = argc < 3 ? KINDS : kind_of(argv[1]);
	if (kind == KINDS) {
		fprintf(stderr, "usage: bench-predict default|latest|draw N [SEED] <TRACE\n");
		return 2;
	}
	limit = strtoul(argv[2], NULL, 10);
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	for (unsigned starts = 0; getline(&line, &size, stdin) >= 0; starts++) {
		n = kind == LATEST ? ask_latest(limit, guesses)
		    : kind == DRAW ? ask_draw(limit, seed, guesses)
				   : ask_default(starts, limit, guesses);
		for (size_t i = 0; i < n; i++)
			printf("%s%zu", i ? " " : "", guesses[i].item);
		putchar('\n');
		learn(line);
	}
	free(line);
	return 0;
}
