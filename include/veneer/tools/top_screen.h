/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of `veneer top` that fits a terminal: as many columns and rows as there are, the mounts'
 * names whole to the right as far as they go. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Sort keys of mounts, the most first; a key each. */
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
	bool has_style; /* bold and inverse text, and red */
};

/* True: this key chooses an order. */
bool top_screen_key(char key, enum top_screen_order *ret);
/* At most rows lines. Errors stay in out (ferror). 0 or -ENOMEM. */
int top_screen_print(const struct top_screen *s, const struct report *begun,
		     const struct report *ended, double seconds, FILE *out);
