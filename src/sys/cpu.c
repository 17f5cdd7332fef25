// SPDX-License-Identifier: Apache-2.0
#include "veneer/cpu.h"

#include "veneer/cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FIELD_STATE 3		/* the first one behind the name, in proc(5) */
#define FIELD_PROCESSOR 39

int cpu_of_thread(uint32_t tid)
{
	_cleanup_(closep) int fd = -1;
	char path[48], line[1024], *p, *end;
	ssize_t n;
	long cpu;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/stat", tid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		/* By the number of a thread that is not the first of its process. */
		snprintf(path, sizeof(path), "/proc/%u/stat", tid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	n = read(fd, line, sizeof(line) - 1);
	if (n < 0)
		return -errno;
	line[n] = '\0';
	/* The name may have anything in it, also what looks like its end. */
	p = strrchr(line, ')');
	for (int field = FIELD_STATE - 1; p && field < FIELD_PROCESSOR; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return -EIO;
	cpu = strtol(p + 1, &end, 10);
	return end == p + 1 || cpu < 0 || cpu >= CPU_SETSIZE ? -EIO : (int)cpu;
}

/* Is it where we told it to stay? Else somebody has said something else, and that counts. */
static bool is_ours(int cpu, const cpu_set_t *now)
{
	return cpu >= 0 && CPU_COUNT(now) == 1 && CPU_ISSET((size_t)cpu, now);
}

int cpu_stay_on(struct cpu_stay *s, int cpu)
{
	cpu_set_t now, only;

	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return -EPERM;
	if (s->cpu == cpu)
		return 0;
	if (sched_getaffinity(0, sizeof(now), &now) < 0)
		return -errno;
	if (is_ours(s->cpu, &now))
		now = s->before;
	if (!CPU_ISSET((size_t)cpu, &now))
		return -EPERM;
	CPU_ZERO(&only);
	CPU_SET((size_t)cpu, &only);
	if (sched_setaffinity(0, sizeof(only), &only) < 0)
		return -errno;
	s->before = now;
	s->cpu = cpu;
	return 0;
}

void cpu_stay_nowhere(struct cpu_stay *s)
{
	cpu_set_t now;

	if (s->cpu < 0)
		return;
	if (sched_getaffinity(0, sizeof(now), &now) == 0 && is_ours(s->cpu, &now))
		sched_setaffinity(0, sizeof(s->before), &s->before);
	s->cpu = -1;
}

void cpu_free_thread(pid_t tid, int cpu)
{
	cpu_set_t now, mine;

	if (sched_getaffinity(tid, sizeof(now), &now) == 0 && is_ours(cpu, &now) &&
	    sched_getaffinity(0, sizeof(mine), &mine) == 0)
		sched_setaffinity(tid, sizeof(mine), &mine);
}
