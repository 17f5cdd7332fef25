/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that runs on while the day's is set. */
#pragma once

#include "veneer/base/lock.h"

#include <pthread.h>
#include <stdint.h>

/* Since whenever. */
int64_t clock_ns(void);
int64_t clock_ms(void);
int64_t clock_s(void);
/* Wait for cond, a plain one, until that time at most. May wake early. 0, or ETIMEDOUT. */
int clock_wait(pthread_cond_t *cond, mutex_t *lock, int64_t until_ms);
