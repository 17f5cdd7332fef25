/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text for a terminal: columns as wide as what is in them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_TABLE_COLUMNS_MAX 16

struct text_table {
	size_t ncolumns;
	const char *left; /* a letter a column: 'l' for those that begin at the left, others end at
			     the right */
	char **cells; /* row by row */
	size_t n, cap;
	const bool *is_red; /* NULL, or a row each, without the head; borrowed */
	bool has_failed; /* a cell is missing */
};

/* The head: its columns, "l" or "r" each in left, which is borrowed. */
void text_table_init(struct text_table *g, const char *left, const char *const *heads);
void text_table_release(struct text_table *g);
/* A copy in which bytes that a terminal might obey are question marks; malloc'd, NULL on no
 * memory. */
char *text_table_text(const char *text);
/* The next cell; rows fill from the left. As text_table_text has it. */
void text_table_put(struct text_table *g, const char *text);
/* Cut the cells of the last column, but for its head, at their left, so that no line is longer than
 * so many characters, as long as some are left of them. */
void text_table_fit(struct text_table *g, size_t columns);
/* -ENOMEM when a cell was lost; nothing is printed then. */
int text_table_print(const struct text_table *g, FILE *out);
