// SPDX-License-Identifier: Apache-2.0
/* An input is the value of a partial mark; it is read as it is, and with its checksum mended. */
#include <stdlib.h>
#include <string.h>

#include "veneer/base/hash.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/format.h"
#include "veneer/sys/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
	static struct partial_xattr m;
	struct buf b = { 0 };

	if (partial_xattr_decode(data, size, &m) < 0)
		return;
	if (m.path[0] && !path_is_plain(m.path, strlen(m.path)))
		abort();
	if (partial_xattr_encode(&m, &b) < 0 || b.len != size || memcmp(b.data, data, size) != 0)
		abort();
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t mended[8192], summed[8192];
	size_t head = offsetof(struct format_partial, checksum);

	check(data, size);
	if (size < sizeof(struct format_partial) || size > sizeof(mended))
		return 0;
	memcpy(mended, data, size);
	memcpy(summed, data, head);
	memcpy(summed + head, data + head + 8, size - head - 8);

	uint64_t sum = hash_checksum(summed, size - 8);

	memcpy(mended + head, &sum, 8);
	check(mended, size);
	return 0;
}
