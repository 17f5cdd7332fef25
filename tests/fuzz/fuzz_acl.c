// SPDX-License-Identifier: Apache-2.0
/* An input is the value of a POSIX ACL attribute, as a layer has it or a container sets it. */
#include "support.h"

#include "veneer/mount/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct id_map rows[] = {
		{ .outside = 1000, .inside = 0, .len = 1 },
		{ .outside = 100000, .inside = 1, .len = 65536 },
	};
	const struct id_maps maps = { .rows = rows, .n = 2 };
	uint8_t *value = malloc(size + 1), *again = malloc(size + 1);

	if (value && again && size) {
		memcpy(value, data, size);
		memcpy(again, data, size);
		fuzz_require(idmap_acl(&maps, &maps, value, size, false) == 0);
		/* A container reads what it sets, where each of its ids has one on disk. */
		if (idmap_acl(&maps, &maps, again, size, true) == 0) {
			fuzz_require(idmap_acl(&maps, &maps, again, size, false) == 0);
			fuzz_require(!memcmp(again, data, size));
		}
	}
	free(value);
	free(again);
	return 0;
}
