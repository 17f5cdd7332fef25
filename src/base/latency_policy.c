// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/latency_policy.h"

#include <stdatomic.h>

#define load(p)	    atomic_load_explicit(p, memory_order_relaxed)
#define store(p, v) atomic_store_explicit(p, v, memory_order_relaxed)

bool latency_policy_request(struct latency_policy *p, int64_t now_ms, int us)
{
	const int held_us = load(&p->held_us);
	const int64_t last_ms = load(&p->last_ms);
	uint32_t run;

	if (held_us == us)
		store(&p->count, load(&p->count) + 1);
	if (held_us <= us)
		return false;
	run = now_ms - last_ms <= LATENCY_POLICY_CLOSE_MS ? load(&p->run) + 1 : 1;
	store(&p->last_ms, now_ms);
	store(&p->run, run);
	return run >= LATENCY_POLICY_RUN && now_ms >= load(&p->not_before_ms);
}

void latency_policy_hold(struct latency_policy *p, int us)
{
	store(&p->run, 0);
	store(&p->count, 0);
	store(&p->held_us, us);
}

bool latency_policy_is_kept(const struct latency_policy *p, uint32_t *seen)
{
	const uint32_t count = load(&p->count), came = count - *seen;

	*seen = count;
	return came >= LATENCY_POLICY_KEEP;
}

void latency_policy_end(struct latency_policy *p, int64_t now_ms)
{
	latency_policy_hold(p, LATENCY_POLICY_NOTHING);
	store(&p->not_before_ms, now_ms + LATENCY_POLICY_PAUSE_MS);
}
