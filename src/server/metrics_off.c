// SPDX-License-Identifier: Apache-2.0
/* metrics.c of a build without libmicrohttpd (-Dmetrics=disabled). */
#include "veneer/server/metrics.h"

#include <errno.h>
#include <stdio.h>

bool metrics_is_built(void)
{
	return false;
}

int metrics_load(char *err, size_t err_size)
{
	snprintf(err, err_size, "this program was built without metrics over HTTP");
	return -EOPNOTSUPP;
}

int metrics_start(int fd, int (*page)(void *arg, char **ret), void *arg, struct metrics **ret)
{
	(void)fd;
	(void)page;
	(void)arg;
	(void)ret;
	return -EOPNOTSUPP;
}

void metrics_quiesce(struct metrics *m)
{
	(void)m;
}

void metrics_stop(struct metrics *m)
{
	(void)m;
}
