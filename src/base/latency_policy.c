// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/latency_policy.h"

#include <stdatomic.h>

#define load(p)	    atomic_load_explicit(p, memory_order_relaxed)
#define store(p, v) atomic_store_explicit(p, v, memory_order_relaxed)

bool latency_policy_request(struct latency_policy *p, int64_t now_ms, int us)
{
	const int64_t last_ms = load(&p->last_ms);
	uint32_t run;

	store(&p->last_ms, now_ms);
	if (load(&p->held_us) <= us)
		return false;
	run = now_ms - last_ms <= LATENCY_POLICY_CLOSE_MS ? load(&p->run) + 1 : 1;
	store(&p->run, run);
	return run >= LATENCY_POLICY_RUN;
}

void latency_policy_hold(struct latency_policy *p, int us)
{
	store(&p->run, 0);
	store(&p->held_us, us);
}

int64_t latency_policy_until(const struct latency_policy *p)
{
	return load(&p->last_ms) + LATENCY_POLICY_QUIET_MS;
}
