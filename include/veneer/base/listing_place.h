/* SPDX-License-Identifier: Apache-2.0 */
/* Place in a listing of a name that only an upper has, or had when a snapshot of it was taken. It
 * stands behind the names of the lower layers, by its hash. So a reader of the directory goes on at
 * the same place after another server has taken over, or after the upper became a snapshot. */
#pragma once

#include <stdint.h>

/* With the lower names before them these fit 31 bits: there are programs with such offsets. The
 * names of snapshots have the even places and those of an upper the odd ones, so that no two have
 * the same; a name whose place is taken is LISTING_PLACE_STEP further on. */
#define LISTING_PLACE_MASK 0x3fffffffu
#define LISTING_PLACE_STEP 2u

/* hash: hash_key of the name. */
static inline uint32_t listing_place(uint64_t hash, int is_of_upper)
{
	return ((uint32_t)(hash >> 32) & LISTING_PLACE_MASK & ~1u) | (is_of_upper ? 1u : 0u);
}
