/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text for a terminal, with columns as wide as their contents. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_TABLE_COLUMNS_MAX 16

struct text_table {
	size_t ncolumns;
	const char *left; /* alignment of each column: 'l' is left, others are right */
	char **cells; /* row by row */
	size_t n, cap;
	const bool *is_red; /* one per row without the head, borrowed; NULL: none */
	bool has_failed; /* a cell is missing */
};

/* Set the columns and their heads. left: 'l' or 'r' for each column, borrowed. */
void text_table_init(struct text_table *g, const char *left, const char *const *heads);
void text_table_release(struct text_table *g);
/* Copy text; bytes that might control a terminal become question marks. Malloc'd, NULL: no
 * memory. */
char *text_table_text(const char *text);
/* Add the next cell, from left to right, as text_table_text would copy it. */
void text_table_put(struct text_table *g, const char *text);
/* Shorten the cells of the last column, except its head, on their left, so that no line is longer
 * than columns. A minimum always remains. */
void text_table_fit(struct text_table *g, size_t columns);
/* -ENOMEM: a cell was lost, and nothing is printed. */
int text_table_print(const struct text_table *g, FILE *out);
