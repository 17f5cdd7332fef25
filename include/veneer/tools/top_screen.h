/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of `veneer top` that fits a terminal. The names of the mounts are in the last column, and
 * shortened only if they must be. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Sort keys of mounts, largest first; each has a key. */
enum top_screen_order {
	TOP_SCREEN_REQUESTS,
	TOP_SCREEN_ERRORS,
	TOP_SCREEN_READ,
	TOP_SCREEN_WRITTEN,
	TOP_SCREEN_OWN,
	TOP_SCREEN_TIME,
	TOP_SCREEN_NAME,
	TOP_SCREEN_ORDERS
};

struct top_screen {
	size_t columns, rows;
	enum top_screen_order order;
	bool has_style; /* use bold, inverse and red text */
};

/* Does this key choose an order? */
bool top_screen_key(char key, enum top_screen_order *ret);
/* Print at most rows lines. I/O errors stay in out (ferror). 0 or -ENOMEM. */
int top_screen_print(const struct top_screen *s, const struct report *begun,
		     const struct report *ended, double seconds, FILE *out);
