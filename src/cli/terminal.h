/* SPDX-License-Identifier: Apache-2.0 */
/* Escape sequences and colours of a terminal: the former if it knows them, the latter unless
 * NO_COLOR is set (no-color.org). */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the terminal know escape sequences? */
static inline bool terminal_can_draw(FILE *out)
{
	const char *kind = getenv("TERM");

	return isatty(fileno(out)) && kind && strcmp(kind, "dumb") != 0;
}

static inline bool terminal_has_colours(FILE *out)
{
	const char *no = getenv("NO_COLOR");

	return terminal_can_draw(out) && !(no && *no);
}
