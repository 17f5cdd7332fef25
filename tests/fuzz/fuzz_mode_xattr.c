// SPDX-License-Identifier: Apache-2.0
/* An input is the value of an attribute with owner and mode. */
#include "support.h"

#include "veneer/layer/mode_xattr.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct stat before = {
		.st_mode = S_IFREG | 0640, .st_uid = 12, .st_gid = 34, .st_size = 56
	};
	struct stat st = before;

	if (!mode_xattr_parse((const char *)data, size, &st)) {
		fuzz_require(!memcmp(&st, &before, sizeof(st)));
		return 0;
	}
	fuzz_require(S_ISREG(st.st_mode) && (st.st_mode & ~(S_IFMT | 07777)) == 0 &&
		     st.st_size == before.st_size);
	fuzz_require(st.st_uid != UINT32_MAX && st.st_gid != UINT32_MAX);
	return 0;
}
