// SPDX-License-Identifier: Apache-2.0
#include "answer_gate.h"

#include "veneer/base/clock.h"
#include "veneer/base/lock.h"

#include <errno.h>

static struct {
	mutex_t lock;
	pthread_cond_t changed;
	GUARDED_BY(lock) unsigned inside;
	GUARDED_BY(lock) bool is_closed;
} gate = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

void answer_gate_enter(void)
{
	LOCK_SCOPE(&gate.lock);
	while (gate.is_closed)
		pthread_cond_wait(&gate.changed, &gate.lock);
	gate.inside++;
}

void answer_gate_leave(void)
{
	LOCK_SCOPE(&gate.lock);
	gate.inside--;
	pthread_cond_broadcast(&gate.changed);
}

int answer_gate_close(int limit_ms)
{
	const int64_t end = clock_ms() + limit_ms;

	LOCK_SCOPE(&gate.lock);
	if (gate.is_closed)
		return -EBUSY;
	gate.is_closed = true;
	while (gate.inside && clock_ms() < end)
		clock_wait(&gate.changed, &gate.lock, end);
	if (!gate.inside)
		return 0;
	gate.is_closed = false;
	pthread_cond_broadcast(&gate.changed);
	return -EBUSY;
}

void answer_gate_open(void)
{
	LOCK_SCOPE(&gate.lock);
	gate.is_closed = false;
	pthread_cond_broadcast(&gate.changed);
}
