/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers drawn from a seed. A stream is named by two numbers besides the seed, so that leaving one
 * operation out shifts the draws of no other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct dice {
	uint64_t state;
};

static inline uint64_t dice_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline struct dice dice_stream(uint64_t seed, uint64_t what, uint64_t number)
{
	return (struct dice){ dice_mix(dice_mix(dice_mix(seed) ^ what) ^ number) };
}

static inline uint64_t dice_next(struct dice *d)
{
	d->state += 0x9e3779b97f4a7c15u;
	return dice_mix(d->state);
}

/* 0 to n - 1; n is not 0. */
static inline uint64_t dice_below(struct dice *d, uint64_t n)
{
	return dice_next(d) % n;
}

/* True once in n times. */
static inline bool dice_once_in(struct dice *d, uint64_t n)
{
	return dice_below(d, n) == 0;
}
