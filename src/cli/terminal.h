/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what may be written to a terminal: lines drawn anew where it can, colours unless NO_COLOR
 * is set (no-color.org). */
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
