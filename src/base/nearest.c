// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/nearest.h"

#include "veneer/base/minmax.h"

#include <string.h>

#define WORD_MAX 31u

unsigned nearest_distance(const char *a, const char *b)
{
	const size_t na = strlen(a), nb = strlen(b);
	unsigned row[3][WORD_MAX + 1] = { { 0 } };

	if (na > WORD_MAX || nb > WORD_MAX)
		return NEAREST_FAR;
	for (size_t i = 0; i <= na; i++) {
		unsigned *now = row[i % 3];
		const unsigned *before = row[(i + 2) % 3], *twice = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t k = 1; k <= nb; k++) {
			if (i == 0) {
				now[k] = (unsigned)k;
				continue;
			}
			now[k] = MIN(MIN(before[k], now[k - 1]) + 1,
				     before[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				now[k] = MIN(now[k], twice[k - 2] + 1);
		}
	}
	return row[na % 3][nb];
}

bool nearest_is_meant(const char *typed, const char *word)
{
	const unsigned n = nearest_distance(typed, word);

	return n > 0 && n <= (strlen(word) > 4 ? 2 : 1);
}
