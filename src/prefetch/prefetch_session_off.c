// SPDX-License-Identifier: Apache-2.0
/* prefetch_session.c of -Dprefetch=disabled: nothing is learned. */
#include "veneer/prefetch/prefetch_session.h"

#include <errno.h>
#include <unistd.h>

int prefetch_session_start(const struct prefetch_session_config *c, struct prefetch_session **ret)
{
	(void)ret;
	close(c->state_fd);
	return -EOPNOTSUPP;
}

struct trace *prefetch_session_trace(struct prefetch_session *l)
{
	(void)l;
	return NULL;
}

void prefetch_session_stop(struct prefetch_session *l)
{
	(void)l;
}

void prefetch_session_drain(unsigned timeout_ms)
{
	(void)timeout_ms;
}
