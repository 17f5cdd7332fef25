/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of progress reports of offline tools in a layer. */
#pragma once

#include <stddef.h>

struct step {
	/* entries: that were seen so far; dirs: that are known, and were not read yet. Called for
	 * each entry. */
	void (*fn)(void *arg, size_t entries, size_t dirs);
	void *arg;
};

/* step may be NULL. */
static inline void step_take(const struct step *step, size_t entries, size_t dirs)
{
	if (step)
		step->fn(step->arg, entries, dirs);
}
