/* SPDX-License-Identifier: Apache-2.0 */
/* Processors: where a thread runs, and where the calling one may. */
#pragma once

#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

/* What the calling thread was allowed before it was told to stay; of that thread alone. */
struct cpu_stay {
	int cpu;		/* where it stays, or -1 */
	cpu_set_t before;	/* if it does */
};

/* The processor that a thread of any process ran on last; -errno, also if /proc does not show it. */
int cpu_of_thread(uint32_t tid);
/* The calling thread runs on that processor only. -EPERM: not one that it is allowed. On failure it is where it was. */
int cpu_stay_on(struct cpu_stay *s, int cpu);
/* It may again run wherever it was allowed; unless somebody else has said meanwhile where. */
void cpu_stay_nowhere(struct cpu_stay *s);
/* Another thread, that was told to stay on that processor and perhaps is not let run there: it may run wherever the
 * calling one may. Its own cpu_stay still says that it stays. */
void cpu_free_thread(pid_t tid, int cpu);
