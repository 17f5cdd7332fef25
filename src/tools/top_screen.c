// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/top_screen.h"

#include "stats_text-internal.h"
#include "text_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/minmax.h"

#include <stdio.h>
#include <string.h>

#define HEAD_ROWS 3u /* of the server, with an empty row */
/* An empty row, the head, and some kinds of request, if there is room beside the mounts. */
#define OPS_ROWS     7u
#define MOUNTS_LEAST 4u
#define SHORT	     12u /* a terminal without room for the whole head */
#define WIDE	     110u
#define NARROW	     72u
#define BOLD	     "\033[1m"
#define INVERSE	     "\033[7m"
#define PLAIN	     "\033[0m"

static const struct {
	char key;
	const char *head, *word;
	bool is_narrow, is_wide; /* shown on a narrow terminal; shown only on a wide one */
} orders[TOP_SCREEN_ORDERS] = {
	[TOP_SCREEN_REQUESTS] = { 'r', "REQ/S", "requests", true, false },
	[TOP_SCREEN_ERRORS] = { 'e', "ERR/S", "errors", false, false },
	[TOP_SCREEN_READ] = { 'b', "READ/S", "bytes read", false, false },
	[TOP_SCREEN_WRITTEN] = { 'w', "WRITE/S", "written", false, false },
	[TOP_SCREEN_OWN] = { 'c', "OWN/S", "copied", false, true },
	[TOP_SCREEN_TIME] = { 't', "99 %", "time", true, false },
	[TOP_SCREEN_NAME] = { 'm', "MOUNTPOINT", "mount", true, false },
};

bool top_screen_key(char key, enum top_screen_order *ret)
{
	for (int i = 0; i < TOP_SCREEN_ORDERS; i++)
		if (orders[i].key == key) {
			*ret = (enum top_screen_order)i;
			return true;
		}
	return false;
}

/* A mount with its sort key. */
struct line {
	const struct busy *busy;
	uint64_t value, p99_us;
	bool has_any;
};

static uint64_t value_of(const struct line *l, enum top_screen_order order)
{
	const struct stats_values *v = &l->busy->gained;

	switch (order) {
	case TOP_SCREEN_ERRORS:
		return stats_text_sum_errors(v);
	case TOP_SCREEN_READ:
		return v->counters[STATS_READ_BYTES];
	case TOP_SCREEN_WRITTEN:
		return v->counters[STATS_WRITE_BYTES];
	case TOP_SCREEN_OWN:
		return v->counters[STATS_COW_BYTES];
	case TOP_SCREEN_TIME:
		return l->p99_us;
	case TOP_SCREEN_NAME:
		return 0;
	default:
		return l->busy->requests;
	}
}

static int compare(const void *pa, const void *pb)
{
	const struct line *a = pa, *b = pb;

	if (a->value != b->value)
		return a->value < b->value ? 1 : -1;
	return strcmp(a->busy->m->mountpoint, b->busy->m->mountpoint);
}

static struct line *sorted(const struct busy *list, size_t n, enum top_screen_order order)
{
	struct line *lines = calloc(n + 1, sizeof(*lines));

	for (size_t i = 0; lines && i < n; i++) {
		const struct stats_op all = stats_text_sum_ops(&list[i].gained);

		lines[i].busy = &list[i];
		lines[i].has_any = stats_answered(&all);
		lines[i].p99_us = lines[i].has_any ? stats_percentile_us(&all, 99) : 0;
		lines[i].value = value_of(&lines[i], order);
	}
	if (lines)
		qsort(lines, n, sizeof(*lines), compare);
	return lines;
}

static bool is_shown(const struct top_screen *s, int column)
{
	return s->columns >= WIDE ||
	       (!orders[column].is_wide && (s->columns >= NARROW || orders[column].is_narrow));
}

static void put_cell(struct text_table *g, const struct line *l, int column, double seconds)
{
	const struct stats_values *v = &l->busy->gained;

	switch ((enum top_screen_order)column) {
	case TOP_SCREEN_REQUESTS:
		text_table_put(g, human_units_rate((double)l->busy->requests / seconds).text);
		break;
	case TOP_SCREEN_ERRORS:
		text_table_put(g,
			       human_units_rate((double)stats_text_sum_errors(v) / seconds).text);
		break;
	case TOP_SCREEN_TIME:
		text_table_put(g, l->has_any ? human_units_time(l->p99_us).text : "-");
		break;
	case TOP_SCREEN_NAME:
		text_table_put(g, l->busy->m->container ? l->busy->m->container
							: l->busy->m->mountpoint);
		break;
	default:
		text_table_put(
			g, human_units_bytes(
				   (uint64_t)((double)value_of(l, (enum top_screen_order)column) /
					      seconds))
				   .text);
	}
}

/* Print a table with a highlighted first line. */
static int print_table(const struct top_screen *s, struct text_table *g, FILE *out)
{
	_cleanup_(freep) char *text = NULL;
	size_t len, head;
	FILE *f = open_memstream(&text, &len);
	int r = f ? text_table_print(g, f) : -ENOMEM;

	if (f && fclose(f) != 0)
		r = -ENOMEM;
	if (r < 0)
		return r;
	head = strcspn(text, "\n");
	if (s->has_style)
		fprintf(out, BOLD "%.*s" PLAIN "%s", (int)head, text, text + head);
	else
		fputs(text, out);
	return 0;
}

static int print_mounts(const struct top_screen *s, const struct line *lines, size_t n, size_t room,
			double seconds, FILE *out)
{
	/* The last row counts the mounts that are left out. */
	const size_t shown = n + 1 <= room ? n : room > 2 ? room - 2 : 1;
	_cleanup_(freep) bool *is_red = calloc(shown + 1, sizeof(*is_red));
	_cleanup_(text_table_release) struct text_table g = { .ncolumns = 0 };
	char left[TOP_SCREEN_ORDERS + 1] = "", heads[TOP_SCREEN_ORDERS][16];
	const char *head_of[TOP_SCREEN_ORDERS];
	size_t busy = 0, ncolumns = 0;
	int r;

	if (!is_red)
		return -ENOMEM;
	for (int c = 0; c < TOP_SCREEN_ORDERS; c++) {
		if (!is_shown(s, c))
			continue;
		snprintf(heads[ncolumns], sizeof(heads[0]), "%s%s",
			 s->order == (enum top_screen_order)c ? "*" : "", orders[c].head);
		head_of[ncolumns] = heads[ncolumns];
		left[ncolumns++] = c == TOP_SCREEN_NAME ? 'l' : 'r';
	}
	text_table_init(&g, left, head_of);
	for (size_t i = 0; i < shown; i++)
		is_red[i] = s->has_style && stats_text_is_urgent(lines[i].busy->m);
	g.is_red = is_red;
	for (size_t i = 0; i < shown; i++)
		for (int c = 0; c < TOP_SCREEN_ORDERS; c++)
			if (is_shown(s, c))
				put_cell(&g, &lines[i], c, seconds);
	text_table_fit(&g, s->columns);
	r = print_table(s, &g, out);
	for (size_t i = shown; i < n; i++)
		busy += lines[i].busy->requests > 0;
	if (r == 0 && shown < n)
		fprintf(out, "and %zu more, %zu of them busy\n", n - shown, busy);
	return r;
}

/* Print the keys without a line end, which would scroll the terminal. */
static void print_foot(const struct top_screen *s, FILE *out)
{
	char text[128];
	size_t len = (size_t)snprintf(text, sizeof(text), "q quit, sort:");

	for (int i = 0; i < TOP_SCREEN_ORDERS; i++)
		if (is_shown(s, i))
			len += (size_t)snprintf(text + len, sizeof(text) - len, " %c %s",
						orders[i].key, orders[i].word);
	fprintf(out, s->has_style ? INVERSE "%.*s" PLAIN : "%.*s",
		s->columns > 1 ? (int)s->columns - 1 : 1, text);
}

/* Print at most limit lines of text, cut to columns: the terminal would overwrite the last
 * character. */
static size_t print_lines(const char *text, size_t limit, size_t columns, FILE *out)
{
	size_t n = 0;

	for (; n < limit && *text; n++) {
		size_t len = strcspn(text, "\n");

		fprintf(out, "%.*s\n", (int)MIN(len, columns), text);
		text += len + (text[len] == '\n');
	}
	return n;
}

static size_t print_head(const struct report *r, size_t limit, size_t columns, FILE *out)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return 0;
	stats_text_print_server(r, f);
	return fclose(f) == 0 ? print_lines(text, limit, columns, out) : 0;
}

int top_screen_print(const struct top_screen *s, const struct report *begun,
		     const struct report *ended, double seconds, FILE *out)
{
	_cleanup_(freep) struct busy *list = stats_text_gained(begun, ended);
	_cleanup_(freep) struct stats_values *all = stats_text_gained_in_all(begun, ended);
	_cleanup_(freep) struct line *lines = list ? sorted(list, ended->nmounts, s->order) : NULL;
	const double by = seconds > 0.001 ? seconds : 0.001;
	size_t left = s->rows > HEAD_ROWS + 2 ? s->rows - 1 : HEAD_ROWS + 1, wanted, mounts;
	int r = 0;

	if (!lines || !all)
		return -ENOMEM;
	left -= print_head(ended, s->rows >= SHORT ? HEAD_ROWS : 1, s->columns, out);
	fputc('\n', out);
	left--;
	/* The rows include the head, and at most one row for omitted mounts. */
	wanted = ended->nmounts + 1;
	mounts = left > OPS_ROWS + MOUNTS_LEAST && wanted > left - OPS_ROWS ? left - OPS_ROWS
		 : wanted < left					    ? wanted
									    : left;
	if (ended->nmounts)
		r = print_mounts(s, lines, ended->nmounts, mounts, by, out);
	else
		fputs("no mounts\n", out);
	left -= ended->nmounts ? mounts : 1;
	/* An empty row, the head, and at least one kind. */
	if (r == 0 && left > 2)
		r = stats_text_print_op_rates(all, by, left - 2, out);
	print_foot(s, out);
	return r;
}
