// SPDX-License-Identifier: Apache-2.0
/* diff_tar.c of a build without libarchive (-Darchive=disabled). */
#include "veneer/tools/diff.h"

#include "veneer/base/log.h"

#include <errno.h>

int diff_tar_write(const struct diff *d, int fd,
		   void (*step)(void *arg, const struct diff_progress *p), void *arg,
		   struct diff_progress *ret)
{
	(void)d;
	(void)fd;
	(void)step;
	(void)arg;
	*ret = (struct diff_progress){ 0 };
	log_error("this program was built without archives");
	return -EOPNOTSUPP;
}
