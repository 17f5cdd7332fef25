/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that works, sleeps until there is more to do, and is joined at its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WORKER_NO_LIMIT INT64_MAX

struct worker;

/* Start a thread that runs fn until that returns; it has the attributes and the signal mask of any
 * other of this process. fn may call the others here with its worker as soon as it runs, which may
 * be before *ret is set. 0 or -errno. */
int worker_start(void (*fn)(struct worker *me, void *arg), void *arg, struct worker **ret);
/* In the thread: sleep until that time of clock_ms, or until worker_wake was called since the last
 * sleep ended. False: it is to end. */
bool worker_wait(struct worker *me, int64_t until_ms);
/* May be called under any lock. NULL: nothing. */
void worker_wake(struct worker *w);
/* Wake the thread, wait for its end and free it: call it with no lock that the thread takes. NULL:
 * nothing. */
void worker_stop(struct worker *w);
