/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of `veneer top` that fits a terminal: as many columns and rows as there are, the mounts' names whole to the right as far as
 * they go. */
#pragma once

#include "veneer/report.h"

#include <stdio.h>

/* What mounts are sorted by, the most first; a key each. */
enum screen_order { SCREEN_REQUESTS, SCREEN_ERRORS, SCREEN_READ, SCREEN_WRITTEN, SCREEN_OWN, SCREEN_TIME, SCREEN_NAME, SCREEN_ORDERS };

struct screen {
	size_t columns, rows;
	enum screen_order order;
	bool has_style;		/* bold and inverse text, and red */
};

/* True: this key chooses an order. */
bool screen_key(char key, enum screen_order *ret);
/* At most rows lines. Errors stay in out (ferror). 0 or -ENOMEM. */
int screen_print(const struct screen *s, const struct report *begun, const struct report *ended, double seconds, FILE *out);
