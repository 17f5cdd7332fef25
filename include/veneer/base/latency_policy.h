/* SPDX-License-Identifier: Apache-2.0 */
/* When idle processors are to stay awake for requests (sys/cpu_latency.h): a run of requests that
 * follow one another closely asks for it, and too few of them end it. It costs the whole machine
 * power, so a program keeps it up by many requests alone; a stat now and then does not. No system
 * call, no lock. Several threads may call at once; then a few requests are not counted. */
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
/* So often it is looked whether so many came meanwhile; else it ends. 5 ms of quiet halved the time
 * of most requests (shared/measured.md O). That is 1,600 requests a second. */
#define LATENCY_POLICY_LOOK_MS 5
#define LATENCY_POLICY_KEEP    8u
/* So long after its end no run asks: each change wakes all idle processors. */
#define LATENCY_POLICY_PAUSE_MS 50
#define LATENCY_POLICY_NOTHING	INT_MAX

struct latency_policy {
	_Atomic int held_us; /* the request to the kernel now */
	_Atomic uint32_t count; /* requests that wanted that */
	_Atomic int64_t last_ms; /* when the last one came that wanted less */
	_Atomic uint32_t run; /* of those, in a row */
	_Atomic int64_t not_before_ms;
};
#define LATENCY_POLICY_INIT { .held_us = LATENCY_POLICY_NOTHING }

/* A request came that wants waking to take at most us. True: ask for that now; the caller notes it
 * by latency_policy_hold. One store while just that is asked for, none while less is. */
bool latency_policy_request(struct latency_policy *p, int64_t now_ms, int us);
/* us are asked for from now on. */
void latency_policy_hold(struct latency_policy *p, int us);
/* Do the requests since the last look justify to keep it? *seen begins with 0. */
bool latency_policy_is_kept(const struct latency_policy *p, uint32_t *seen);
/* Nothing is asked for any more. */
void latency_policy_end(struct latency_policy *p, int64_t now_ms);
