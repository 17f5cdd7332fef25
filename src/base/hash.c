// SPDX-License-Identifier: Apache-2.0
#include "veneer/hash.h"

#include <xxhash.h>

uint64_t hash_checksum(const void *p, size_t len)
{
	return XXH64(p, len, 0);
}

uint64_t hash_key(const void *p, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, len, seed);
}
