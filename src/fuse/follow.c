// SPDX-License-Identifier: Apache-2.0
#include "veneer/follow.h"

static void begin(struct follow *f, uint32_t caller)
{
	f->caller = caller;
	f->run = 0;
	f->cpu = -1;
}

void follow_init(struct follow *f)
{
	f->is_off = false;
	begin(f, 0);
}

bool follow_request(struct follow *f, uint32_t caller, bool is_side_by_side)
{
	/* Nobody waits for it: it says nothing. */
	if (!caller || f->is_off)
		return false;
	if (caller != f->caller || is_side_by_side || f->run == FOLLOW_TERM)
		begin(f, caller);
	f->run++;
	return f->run == FOLLOW_AFTER || (f->run > FOLLOW_AFTER && f->run % FOLLOW_AGAIN == 0);
}

void follow_found(struct follow *f, uint32_t caller, int cpu)
{
	if (caller == f->caller && f->run >= FOLLOW_AFTER)
		f->cpu = cpu < 0 ? -1 : cpu;
}

void follow_refused(struct follow *f)
{
	begin(f, 0);
	f->is_off = true;
}

void follow_lost(struct follow *f)
{
	begin(f, 0);
}
