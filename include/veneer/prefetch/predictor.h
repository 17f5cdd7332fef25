/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the extents that the next start of a program will touch from the extents of earlier
 * starts, by how likely each comes back so many starts after it was last seen. Pure policy: no
 * file, no clock, the same answer for the same question. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PREDICTOR_STARTS 64u /* that a history reaches back */

/* One thing that was touched in some start. */
struct predictor_item {
	uint64_t seen; /* bit k: in the start before k others; bit 0 is the last one */
	uint32_t count; /* starts in which it was touched, also starts that `seen` has forgotten */
	uint32_t first_ms; /* how long after the beginning it is touched first, in the last start
			      that did */
	uint32_t order; /* its place in the order of that start: 0 came first */
};

struct predictor_question {
	unsigned starts; /* so many came before; 0: nothing is known */
	size_t limit; /* at most so many on trust; items that have come back before, by their own
			 history, are not counted */
	double bound; /* items with a chance above it are predicted, 0..1 */
};

struct predictor_guess {
	size_t item;
	double chance; /* 0..1 */
};

/* The guesses, likeliest first and among equals the earliest first, into ret, which has room for n.
 * How many. */
size_t predictor_ask(const struct predictor_question *q, const struct predictor_item *items,
		     size_t n, struct predictor_guess *ret);
/* The chance of an item to be touched in the next start. */
double predictor_chance(const struct predictor_item *item, unsigned starts);
