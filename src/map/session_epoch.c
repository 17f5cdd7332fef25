// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/session_epoch.h"

#include "veneer/base/hash.h"
#include "veneer/sys/boot_id.h"

#include <errno.h>
#include <string.h>

uint64_t session_epoch_for_tests;

int session_epoch_read(uint64_t *ret)
{
	char text[BOOT_ID_SIZE];
	int r = session_epoch_for_tests ? 0 : boot_id_read(text);

	if (r == 0)
		*ret = session_epoch_for_tests ?: hash_checksum(text, strlen(text));
	else if (r == -ENOENT)
		*ret = 0;
	return r == -ENOENT ? 0 : r;
}

int session_epoch_is_of(const struct table *t)
{
	uint64_t epoch;
	int r = session_epoch_read(&epoch);

	return r < 0 ? r : epoch && t->epoch == epoch;
}
