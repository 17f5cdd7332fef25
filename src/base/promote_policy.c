// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/promote_policy.h"

#include "veneer/base/minmax.h"

#include <stdlib.h>

#define MS_PER_S 1000u
#define LONG_MS	 1000000000000u /* thirty years */

bool promote_policy_takes_chunk(unsigned own, unsigned all)
{
	return own < all && 2 * own > all;
}

unsigned promote_policy_pass(unsigned own, unsigned all)
{
	const unsigned half = all / 2, over = own > half ? own - half - 1 : 0;

	return PROMOTE_POLICY_PASSES - 1 -
	       MIN(over * PROMOTE_POLICY_PASSES / MAX(all - half, 1u), PROMOTE_POLICY_PASSES - 1);
}

static int by_cost(const void *a, const void *b)
{
	const struct promote_policy_file *f = a, *g = b;

	if (f->writes != g->writes)
		return f->writes > g->writes ? -1 : 1;
	if (f->ends != g->ends)
		return f->ends ? -1 : 1;
	if (f->missing != g->missing)
		return f->missing < g->missing ? -1 : 1;
	return f->id < g->id ? -1 : f->id > g->id;
}

void promote_policy_order(struct promote_policy_file *files, size_t n)
{
	if (n)
		qsort(files, n, sizeof(*files), by_cost);
}

static void save_up(struct promote_policy_rate *r, uint64_t now_ms)
{
	const uint64_t most = MIN(r->rate, INT64_MAX);
	uint64_t earned;

	if (!r->has_begun || now_ms < r->at_ms)
		r->at_ms = now_ms;
	r->has_begun = true;
	if (__builtin_mul_overflow(now_ms - r->at_ms, r->rate, &earned))
		earned = UINT64_MAX;
	earned /= MS_PER_S;
	/* Keep time that earns too little to be counted yet. */
	if (!earned)
		return;
	r->at_ms = now_ms;
	if (earned > INT64_MAX || __builtin_add_overflow(r->tokens, (int64_t)earned, &r->tokens) ||
	    r->tokens > (int64_t)most)
		r->tokens = (int64_t)most;
}

uint64_t promote_policy_delay_ms(struct promote_policy_rate *r, uint64_t now_ms)
{
	double wait_ms;

	if (!r->rate)
		return 0;
	save_up(r, now_ms);
	wait_ms = -(double)r->tokens * MS_PER_S / (double)r->rate;
	return r->tokens >= 0 ? 0 : wait_ms < LONG_MS ? (uint64_t)wait_ms + 1 : LONG_MS;
}

void promote_policy_spend(struct promote_policy_rate *r, uint64_t bytes)
{
	if (!r->rate)
		return;
	if (bytes > INT64_MAX || __builtin_sub_overflow(r->tokens, (int64_t)bytes, &r->tokens))
		r->tokens = INT64_MIN;
}

bool promote_policy_is_quiet(struct promote_policy_quiet *q, uint64_t requests, uint64_t now_ms)
{
	if (!q->has_begun || requests != q->requests) {
		q->requests = requests;
		q->since_ms = now_ms;
		q->has_begun = true;
	}
	return now_ms - q->since_ms >= PROMOTE_POLICY_QUIET_MS;
}

bool promote_policy_is_pressed(enum promote_policy_mode mode, int memory_stall, int io_stall)
{
	const int io_max = mode == PROMOTE_POLICY_WRITTEN ? PROMOTE_POLICY_IO_STALL_MAX_WRITTEN
							  : PROMOTE_POLICY_IO_STALL_MAX;

	return memory_stall > PROMOTE_POLICY_MEMORY_STALL_MAX || io_stall > io_max;
}
