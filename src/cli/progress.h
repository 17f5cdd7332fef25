/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work on standard error: on a terminal one line that is redrawn, elsewhere a line
 * from time to time. */
#pragma once

#include "veneer/base/step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool is_shown, is_terminal;
	uint64_t start_ms, drawn_ms;
};

/* The progress so far. */
struct progress_point {
	size_t done, all;
	uint64_t bytes, nbytes; /* done, and all; 0: unknown */
};

void progress_start(struct progress *p, bool is_quiet);
/* Is a new line due? If so, it counts as drawn. */
bool progress_is_due(struct progress *p);
/* Print "N of M files, X of Y, Z/s, T s left" for the noun "file", followed by `more`. */
void progress_show(struct progress *p, const char *noun, const struct progress_point *at,
		   const char *more);
/* Clear the line on a terminal, so that other text can be printed; the progress may go on. */
void progress_clear(const struct progress *p);

/* Progress of a walk through a layer, whose duration is unknown: "N entries, R/s, N directories
 * left". A short walk prints nothing. The step refers to p. */
struct step progress_walk(struct progress *p);
