// SPDX-License-Identifier: Apache-2.0
/* An input is what one supervisor writes down for another program's. */
#include "support.h"

#include "server/handoff_message.h"
#include "veneer/base/cleanup.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_sent(const struct handoff_message *b, int fd)
{
	for (size_t i = 0; i < b->n_fds; i++)
		if (b->fds[i] == fd)
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf again = { 0 };
	struct handoff_message b;

	handoff_message_fits((const char *)data, size);
	if (handoff_message_decode(data, size, &b) < 0) {
		fuzz_require(!b.mounts && !b.fds && !b.journal.data);
		return 0;
	}
	fuzz_require(is_sent(&b, b.listen_fd) && (b.notify_fd < 0 || is_sent(&b, b.notify_fd)));
	for (size_t i = 0; i < b.n_mounts; i++)
		fuzz_require(is_sent(&b, b.mounts[i]));
	/* One word may have been any value but 0. */
	if (handoff_message_encode(&b, &again) == 0)
		fuzz_require(again.len == size && !memcmp(again.data + 8, data + 8, size - 8));
	handoff_message_release(&b);
	return 0;
}
