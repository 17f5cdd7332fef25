/* SPDX-License-Identifier: Apache-2.0 */
/* Find the word that a misspelt one was meant to be. Pure. */
#pragma once

#include <stdbool.h>

#define NEAREST_FAR 1000u

/* How many letters have to be typed, left out, changed, or exchanged with their neighbour (Damerau
 * and Levenshtein). NEAREST_FAR for words of more than 31 bytes. */
unsigned nearest_distance(const char *a, const char *b);
/* One slip away from the word, or two if it has more than four letters; not the word itself. */
bool nearest_is_meant(const char *typed, const char *word);
