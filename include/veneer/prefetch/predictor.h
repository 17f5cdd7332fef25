/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the extents that the next start of a program will touch from the extents of earlier
 * starts. Pure policy: no file, no clock, the same answer for the same question. Three predictors
 * answer it; the first is the one that is used, the others are those of DPSO (Jiang et al. 2021),
 * to compare with. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PREDICTOR_STARTS 64u /* that a history reaches back */

enum predictor_kind {
	PREDICTOR_DEFAULT, /* by how likely it comes back so many starts after it was last seen */
	PREDICTOR_LATEST, /* the N that were touched last */
	PREDICTOR_DRAW, /* N drawn, each as likely as it was touched often (Algorithm 1) */
	PREDICTOR_KINDS
};

/* One thing that was touched in some start. */
struct predictor_item {
	uint64_t seen; /* bit k: in the start before k others; bit 0 is the last one */
	uint32_t count; /* starts in which it was touched, also starts that `seen` has forgotten */
	uint32_t first_ms; /* how long after the beginning it is touched first, in the last start
			      that did */
	uint32_t order; /* its place in the order of that start: 0 came first */
};

struct predictor_question {
	enum predictor_kind kind;
	unsigned starts; /* so many came before; 0: nothing is known */
	size_t limit; /* N. DPSO's predictors: at most so many. The default one: at most so many on
			 trust; items that have come back before, by their own history, are not
			 counted */
	double bound; /* the default one: the least chance that is worth an item, 0..1 */
	uint64_t seed; /* of the draw */
};

struct predictor_guess {
	size_t item;
	double chance; /* 0..1 */
};

/* The guesses, likeliest first and among equals the earliest first, into ret, which has room for n.
 * How many. */
size_t predictor_ask(const struct predictor_question *q, const struct predictor_item *items,
		     size_t n, struct predictor_guess *ret);
/* The chance that the default predictor gives an item. */
double predictor_chance(const struct predictor_item *item, unsigned starts);
/* "default", "latest", "draw"; PREDICTOR_KINDS for another word. */
enum predictor_kind predictor_by_name(const char *name);
