// SPDX-License-Identifier: Apache-2.0
/* An input is one record behind a predecessor whose checksum is 0; it is read as it is, and once
 * more with its checksum mended. */
#include <stdlib.h>
#include <string.h>

#include "veneer/base/hash.h"
#include "veneer/map/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
	struct record rec;
	uint64_t sum, again_sum;
	const char *why = NULL;
	uint8_t again[FORMAT_REC_BYTES_MAX];
	int r = record_decode(data, size, 0, &rec, &sum, &why);

	if (r <= 0) {
		if (!why)
			abort();
		return;
	}
	if ((size_t)r > size || record_encode(&rec, 0, again, &again_sum) != (size_t)r)
		abort();
	if (again_sum != sum || memcmp(again, data, (size_t)r) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t mended[8 + FORMAT_REC_BYTES_MAX] = { 0 };

	check(data, size);
	if (size < 16 || size > FORMAT_REC_BYTES_MAX)
		return 0;
	memcpy(mended + 8, data, size);

	uint64_t sum = hash_checksum(mended, size);

	memcpy(mended + size, &sum, 8);
	check(mended + 8, size);
	return 0;
}
