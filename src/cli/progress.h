/* SPDX-License-Identifier: Apache-2.0 */
/* How far long work is: one line that is drawn anew on a terminal, a line now and then elsewhere,
 * on standard error. */
#pragma once

#include "veneer/base/step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool is_shown, is_terminal;
	uint64_t start_ms, drawn_ms;
};

/* How far a work is. */
struct progress_point {
	size_t done, all;
	uint64_t bytes, nbytes; /* done, and all; 0: not known */
};

void progress_start(struct progress *p, bool is_quiet);
/* Is it time for a line? Then it counts as drawn. */
bool progress_is_due(struct progress *p);
/* "N of M files, X of Y, Z/s, T s left", of the noun "file", and what `more` says behind it ("" for
 * nothing). */
void progress_show(struct progress *p, const char *noun, const struct progress_point *at,
		   const char *more);
/* Nothing of it stays on a terminal, so that something else can be printed; it may go on. */
void progress_clear(const struct progress *p);

/* Of a walk through a layer, of which nobody knows how long it takes: "N entries, R/s, N
 * directories left". Nothing is said of one that ends at once. The step holds p. */
struct step progress_walk(struct progress *p);
