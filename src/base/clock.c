// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/clock.h"

#include "veneer/base/lock.h"

#include <time.h>

int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

int64_t clock_s(void)
{
	return clock_ns() / 1000000000;
}

int clock_wait(pthread_cond_t *cond, mutex_t *lock, int64_t until_ms)
{
	const struct timespec until = { (time_t)(until_ms / 1000),
					(long)(until_ms % 1000) * 1000000 };

	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
}
