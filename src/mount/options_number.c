// SPDX-License-Identifier: Apache-2.0
#include "options-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool options_number_integer(const char *s, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (end == s || *end || errno)
		return false;
	*ret = v;
	return true;
}

bool options_number_scaled(const char *value, const char *units, uint64_t scale, uint64_t *ret)
{
	const char *unit;
	uint64_t n;
	char *end;

	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno || !n)
		return false;
	unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return false;
	for (const char *u = units; unit && u <= unit; u++)
		if (__builtin_mul_overflow(n, scale, &n))
			return false;
	*ret = n;
	return true;
}
