// SPDX-License-Identifier: Apache-2.0
/* delta_send.c and delta_receive.c of a build without libarchive (-Darchive=disabled). */
#include "veneer/tools/delta.h"

#include "sha256_library.h"

#include "veneer/base/log.h"

#include <errno.h>

static int refuse(void)
{
	log_error("this program was built without archives");
	return -EOPNOTSUPP;
}

int delta_send(const struct diff *d, const struct delta_head *head, bool is_compressed, int fd,
	       const struct delta_hooks *hooks, struct delta_progress *ret)
{
	(void)d;
	(void)head;
	(void)is_compressed;
	(void)fd;
	(void)hooks;
	*ret = (struct delta_progress){ 0 };
	return refuse();
}

int delta_receive(int fd, const struct delta_target *to, const struct delta_hooks *hooks,
		  struct delta_received *ret)
{
	(void)fd;
	(void)to;
	(void)hooks;
	*ret = (struct delta_received){ .entries = 0 };
	return refuse();
}

int sha256_library_file(int fd, char ret[SHA256_LIBRARY_HEX + 1])
{
	(void)fd;
	*ret = '\0';
	return refuse();
}
