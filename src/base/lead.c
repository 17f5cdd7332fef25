// SPDX-License-Identifier: Apache-2.0
#include "veneer/lead.h"

/* A RELEASE is often still being answered when its caller's next request comes, so one that waits proves nothing: two
 * callers are found waiting at most ticks, one at a few in a hundred. */
#define WAITING_STEP 2u
#define WAITING_ENOUGH 12u

bool lead_request(struct lead *l, uint64_t now_ns)
{
	if (l->is_led || l->is_called || now_ns < l->not_before_ns)
		return false;
	if (now_ns - l->counted_ns > LEAD_DENSE_NS) {
		l->counted_ns = now_ns;
		l->nrequests = 0;
	}
	l->is_called = ++l->nrequests >= LEAD_DENSE;
	return l->is_called;
}

void lead_begin(struct lead *l, uint64_t now_ns)
{
	l->is_led = true;
	l->is_called = false;
	l->nrequests = l->nquiet = l->nwaiting = 0;
	l->begun_ns = now_ns;
}

static void pause_after_overlap(struct lead *l, uint64_t now_ns)
{
	if (!l->pause_ns || now_ns - l->begun_ns >= LEAD_LONG_NS)
		l->pause_ns = LEAD_PAUSE_NS;
	else if (l->pause_ns < LEAD_PAUSE_MAX_NS)
		l->pause_ns *= 2;
	l->not_before_ns = now_ns + l->pause_ns;
}

bool lead_tick(struct lead *l, uint64_t now_ns, bool has_come, bool is_waiting)
{
	l->nquiet = has_come ? 0 : l->nquiet + 1;
	if (is_waiting)
		l->nwaiting += WAITING_STEP;
	else if (l->nwaiting)
		l->nwaiting--;
	if (l->nwaiting >= WAITING_ENOUGH) {
		pause_after_overlap(l, now_ns);
		return false;
	}
	return l->nquiet < LEAD_QUIET_TICKS;
}

void lead_end(struct lead *l)
{
	l->is_led = l->is_called = false;
	l->nrequests = 0;
}
