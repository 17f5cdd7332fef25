/* SPDX-License-Identifier: Apache-2.0 */
/* When idle processors are to stay awake for requests (sys/cpu_latency.h): requests that follow one
 * another closely ask for it, and quiet ends it. No system call, no lock; several threads may call
 * at once, and what they lose then is a few of the requests that are counted. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* So close after the one before is a request of the same run. A caller that waits for a disk in
 * between gains nothing. */
#define LATENCY_POLICY_CLOSE_MS 2
/* So long is a run that asks. Opening, reading and closing one file takes up to eight requests: a
 * program that does so now and then asks for nothing. */
#define LATENCY_POLICY_RUN 16u
/* So long after the last request it ends. 5 ms halved what most requests took, with next to no time
 * held between runs (shared/measured.md O). */
#define LATENCY_POLICY_QUIET_MS 5
#define LATENCY_POLICY_NOTHING	INT_MAX

struct latency_policy {
	_Atomic int64_t last_ms; /* when the last request came */
	_Atomic uint32_t run; /* requests in a row */
	_Atomic int held_us; /* what is asked for now */
};
#define LATENCY_POLICY_INIT \
	{ .held_us = LATENCY_POLICY_NOTHING, .last_ms = -LATENCY_POLICY_QUIET_MS }

/* A request came that wants waking to take at most us. True: ask for that now; the caller notes it
 * by latency_policy_hold. One store while that much, or less, is asked for already. */
bool latency_policy_request(struct latency_policy *p, int64_t now_ms, int us);
/* us are asked for from now on; LATENCY_POLICY_NOTHING: nothing is. */
void latency_policy_hold(struct latency_policy *p, int us);
/* Until when what is asked for is kept, if no more requests come. */
int64_t latency_policy_until(const struct latency_policy *p);
