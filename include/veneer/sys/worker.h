/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that works, sleeps until there is more to do, and is joined at its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WORKER_NO_LIMIT INT64_MAX

struct worker;

/* Start a thread that runs fn until fn returns, with the usual attributes and signal mask of this
 * process. The thread may call the functions below with its worker as soon as it runs, perhaps
 * before *ret is set. 0 or -errno. */
int worker_start(void (*fn)(struct worker *me, void *arg), void *arg, struct worker **ret);
/* In the thread: sleep until that time of clock_ms, or until worker_wake, including one since the
 * last sleep ended. False: the thread must end. */
bool worker_wait(struct worker *me, int64_t until_ms);
/* May be called under any lock. NULL: does nothing. */
void worker_wake(struct worker *w);
/* Wake the thread, wait for its end and free it; call it without any lock that the thread takes.
 * NULL: does nothing. */
void worker_stop(struct worker *w);
