/* SPDX-License-Identifier: Apache-2.0 */
/* The values of options that need more than a line to understand. */
#pragma once

#include "veneer/mount/options.h"

/* A path relative to cwd made absolute; NULL when out of memory. */
char *options_path_absolute(const char *cwd, const char *path);
/* Parse one path of an option, from s up to `end`: absolute, and rid of its escapes. -ENOMEM. */
int options_path_parse(const char *cwd, const char *s, const char *end, char **ret);

/* A:B:N triplets; the rows go to the caller, who frees them. -EINVAL, -ENOMEM. */
int idmap_parse(const char *text, struct id_maps *ret);

/* A decimal number, and nothing behind it. */
bool options_number_integer(const char *s, int64_t *ret);
/* Above 0, with one of units behind it, each so many times the one before. */
bool options_number_scaled(const char *value, const char *units, uint64_t scale, uint64_t *ret);
