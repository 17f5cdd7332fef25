/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the threads that answer requests are led: one thread reads the requests of a mount, answers each itself and
 * comes back for the next, instead of several that wait in turn. The kernel wakes whoever has waited longest, so several
 * go round, and where each of them ran last is where it is woken: the requests of a single caller then go from one
 * processor to the other and back. One that comes back alone stays where its caller is. But while it answers nobody reads,
 * so a *watcher* looks each tick whether somebody waits, and being led ends when requests come at once.
 * Policy only: the caller keeps the time, in nanoseconds of any clock that goes forward, and its own lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LEAD_TICK_MS 1
#define LEAD_DENSE 32u			/* so many requests within that time are worth a watcher, which costs a wake-up a tick */
#define LEAD_DENSE_NS 10000000u
#define LEAD_QUIET_TICKS 20u		/* without a request, and the watcher goes */
#define LEAD_PAUSE_NS 50000000u		/* after requests that came at once; doubled each time */
#define LEAD_PAUSE_MAX_NS 1600000000u
#define LEAD_LONG_NS 200000000u		/* led for so long, the pause is the shortest again */

struct lead {
	bool is_led;
	bool is_called;			/* a watcher was asked for */
	unsigned nrequests;		/* since counted_ns */
	unsigned nquiet;		/* ticks */
	unsigned nwaiting;		/* grows with ticks that find a request waiting, falls with others */
	uint64_t counted_ns, begun_ns, not_before_ns, pause_ns;
};

/* A request came. True: a watcher is to come; said once. */
bool lead_request(struct lead *l, uint64_t now_ns);
/* A watcher is there. */
void lead_begin(struct lead *l, uint64_t now_ns);
/* The watcher has looked: were there requests since the last tick, and does one wait that nobody reads? True: go on. */
bool lead_tick(struct lead *l, uint64_t now_ns, bool has_come, bool is_waiting);
/* The watcher goes, whatever the reason; twice does no harm. */
void lead_end(struct lead *l);
