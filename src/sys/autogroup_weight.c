// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/autogroup_weight.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define STEP	  1.25
#define HALF_STEP 1.118 /* square root of STEP: from there on the next value is nearer */
#define LOWEST	  (-20)

int autogroup_weight_nice(size_t n)
{
	double left = (double)n;
	int nice = 0;

	for (; left >= HALF_STEP && nice > LOWEST; left /= STEP)
		nice--;
	return nice;
}

void autogroup_weight_apply(int nice)
{
	_cleanup_(closep) int fd = -1;
	char text[16];
	int len;

	/* The session of a shell that started this process is not changed. */
	if (getsid(0) != getpid())
		return;
	len = snprintf(text, sizeof(text), "%d", nice);
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, text, (size_t)len);
}
