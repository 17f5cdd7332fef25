// SPDX-License-Identifier: Apache-2.0
/* apply_tar.c of a build without libarchive (-Darchive=disabled). */
#include "veneer/tools/apply.h"

#include "veneer/base/log.h"

#include <errno.h>

int apply_extract(int tar_fd, int dirfd, void (*left)(void *arg, const char *path), void *arg)
{
	(void)left;
	(void)arg;
	(void)tar_fd;
	(void)dirfd;
	log_error("this program was built without archives");
	return -EOPNOTSUPP;
}
