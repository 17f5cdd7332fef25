// SPDX-License-Identifier: Apache-2.0
#include "text_table.h"

#include "veneer/base/array.h"

#include "veneer/base/minmax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GAP   2
#define LEAST 10 /* characters that remain of a shortened cell */
#define CUT   ".."
#define RED   "\033[31m"
#define PLAIN "\033[0m"

void text_table_init(struct text_table *g, const char *left, const char *const *heads)
{
	*g = (struct text_table){ .ncolumns = strlen(left), .left = left };
	for (size_t i = 0; i < g->ncolumns; i++)
		text_table_put(g, heads[i]);
}

void text_table_release(struct text_table *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->cells[i]);
	free(g->cells);
	*g = (struct text_table){ .ncolumns = 0 };
}

char *text_table_text(const char *text)
{
	char *own = strdup(text);

	for (char *p = own; p && *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return own;
}

void text_table_put(struct text_table *g, const char *text)
{
	char *own = text_table_text(text);

	if (!own || array_reserve(&g->cells, &g->cap, g->n + 1) < 0) {
		g->has_failed = true;
		free(own);
		return;
	}
	g->cells[g->n++] = own;
}

/* The width in characters: count the bytes that begin one in UTF-8. */
static size_t width_of(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void measure(const struct text_table *g, size_t widths[TEXT_TABLE_COLUMNS_MAX])
{
	for (size_t i = 0; i < g->n; i++) {
		size_t width = width_of(g->cells[i]), c = i % g->ncolumns;

		widths[c] = MAX(width, widths[c]);
	}
}

/* Keep the last width characters, behind a mark for the omission. */
static void cut_left(char *s, size_t width)
{
	size_t have = width_of(s);
	char *from = s;

	if (have <= width)
		return;
	for (have += strlen(CUT); have > width; have--)
		do {
			from++;
		} while (((unsigned char)*from & 0xc0) == 0x80);
	memmove(s + strlen(CUT), from, strlen(from) + 1);
	memcpy(s, CUT, strlen(CUT));
}

void text_table_fit(struct text_table *g, size_t columns)
{
	size_t widths[TEXT_TABLE_COLUMNS_MAX] = { 0 }, used = 0;

	if (g->has_failed || g->ncolumns > TEXT_TABLE_COLUMNS_MAX)
		return;
	measure(g, widths);
	for (size_t c = 0; c + 1 < g->ncolumns; c++)
		used += widths[c] + GAP;
	/* Start after the head. */
	for (size_t i = 2 * g->ncolumns - 1; i < g->n; i += g->ncolumns)
		cut_left(g->cells[i], columns > used + LEAST ? columns - used : LEAST);
}

static bool is_red(const struct text_table *g, size_t row)
{
	return g->is_red && row && g->is_red[row - 1];
}

int text_table_print(const struct text_table *g, FILE *out)
{
	size_t widths[TEXT_TABLE_COLUMNS_MAX] = { 0 };

	if (g->has_failed || g->ncolumns > TEXT_TABLE_COLUMNS_MAX)
		return -ENOMEM;
	measure(g, widths);
	for (size_t i = 0; i < g->n; i++) {
		size_t c = i % g->ncolumns;
		int pad = (int)(widths[c] - width_of(g->cells[i])), gap = c ? GAP : 0;
		bool is_last = c + 1 == g->ncolumns, is_marked = is_red(g, i / g->ncolumns);

		if (is_marked && !c)
			fputs(RED, out);
		if (g->left[c] == 'l')
			fprintf(out, "%*s%s%*s", gap, "", g->cells[i], is_last ? 0 : pad, "");
		else
			fprintf(out, "%*s%s", gap + pad, "", g->cells[i]);
		if (is_last)
			fputs(is_marked ? PLAIN "\n" : "\n", out);
	}
	return 0;
}
