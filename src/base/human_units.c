// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/human_units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOUN_MAX 32u /* bytes, behind 26 for the number */

struct human_units human_units_count(uint64_t n)
{
	struct human_units q;
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	char *to = q.text;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return q;
}

struct human_units human_units_of(uint64_t n, const char *noun)
{
	const size_t len = strnlen(noun, NOUN_MAX);
	const bool ends_in_y = len > 1 && noun[len - 1] == 'y' && !strchr("aeiou", noun[len - 2]);
	const bool ends_in_ch = len > 1 && noun[len - 1] == 'h' && strchr("cs", noun[len - 2]);
	struct human_units q = human_units_count(n);
	char *to = q.text + strlen(q.text);

	*to++ = ' ';
	to = mempcpy(to, noun, len);
	strcpy(n == 1	   ? to
	       : ends_in_y ? to - 1
			   : to,
	       n == 1	    ? ""
	       : ends_in_y  ? "ies"
	       : ends_in_ch ? "es"
			    : "s");
	return q;
}

/* Three digits are enough; below ten of a unit one of them is behind the point. */
static struct human_units scaled(double v, const char *const *units, size_t n, double step)
{
	struct human_units q;
	size_t u = 0;

	for (; v >= step && u + 1 < n; u++)
		v /= step;
	snprintf(q.text, sizeof(q.text), u && v < 9.95 ? "%.1f %s" : "%.0f %s", v, units[u]);
	return q;
}

struct human_units human_units_bytes(uint64_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };

	return scaled((double)n, units, sizeof(units) / sizeof(*units), 1024);
}

struct human_units human_units_time(uint64_t us)
{
	static const char *const units[] = { "us", "ms", "s" };

	return scaled((double)us, units, sizeof(units) / sizeof(*units), 1000);
}

struct human_units human_units_age(uint64_t s)
{
	struct human_units q;

	if (s < 60)
		snprintf(q.text, sizeof(q.text), "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(q.text, sizeof(q.text), "%" PRIu64 " min", s / 60);
	else if (s < 48 * 3600)
		snprintf(q.text, sizeof(q.text), "%" PRIu64 " h %" PRIu64 " min", s / 3600,
			 s / 60 % 60);
	else
		snprintf(q.text, sizeof(q.text), "%" PRIu64 " d %" PRIu64 " h", s / 86400,
			 s / 3600 % 24);
	return q;
}

struct human_units human_units_rate(double per_s)
{
	struct human_units q = { "0" };

	if (per_s >= 9.95)
		return human_units_count((uint64_t)(per_s + 0.5));
	if (per_s > 0)
		snprintf(q.text, sizeof(q.text), "%.1f", per_s);
	return q;
}

struct human_units human_units_share(uint64_t part, uint64_t whole)
{
	struct human_units q = { "-" };

	if (whole)
		snprintf(q.text, sizeof(q.text), "%.0f %%", 100.0 * (double)part / (double)whole);
	return q;
}

bool human_units_scan(const char *text, const char *units, uint64_t scale, uint64_t *ret)
{
	const char *unit;
	uint64_t n;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
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
