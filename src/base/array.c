// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 8 };

/* The caller's pointer has a type of its own: it is read and written as bytes. */
static int resize(void *array, size_t n, size_t item)
{
	size_t bytes;
	void *p, *grown;

	if (__builtin_mul_overflow(n, item, &bytes) || bytes > PTRDIFF_MAX)
		return -ENOMEM;
	memcpy(&p, array, sizeof(p));
	grown = realloc(p, bytes);
	if (!grown)
		return -ENOMEM;
	memcpy(array, &grown, sizeof(grown));
	return 0;
}

int array_reserve_(void *array, size_t *cap, size_t want, size_t item)
{
	size_t n = *cap ? *cap * 2 : FIRST_CAP;
	int r;

	if (want <= *cap)
		return 0;
	if (n < want)
		n = want;
	r = resize(array, n, item);
	if (r == 0)
		*cap = n;
	return r;
}

int array_grow_(void *array, size_t n, size_t item)
{
	return n & (n - 1) ? 0 : resize(array, n ? n * 2 : 1, item);
}
