/* SPDX-License-Identifier: Apache-2.0 */
/* Room in arrays that grow. The caller owns the array, which begins as NULL, and frees it with
 * free(3). */
#pragma once

#include <stddef.h>

/* Room for `want` elements, and for twice as many as before if there has to be more. array: address
 * of the pointer; cap: address of the number of elements that there is room for. New elements are
 * not zeroed. 0, or -ENOMEM, and then nothing has changed. */
#define array_reserve(array, cap, want) array_reserve_(array, cap, want, sizeof(**(array)))
int array_reserve_(void *array, size_t *cap, size_t want, size_t item);
/* Room for one element behind n of them, in an array whose capacity is not kept: powers of two are
 * full. All its room comes from here. 0, or -ENOMEM, and then nothing has changed. */
#define array_grow(array, n) array_grow_(array, n, sizeof(**(array)))
int array_grow_(void *array, size_t n, size_t item);
