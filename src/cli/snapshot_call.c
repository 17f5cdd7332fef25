// SPDX-License-Identifier: Apache-2.0
#include "snapshot_call.h"

#include "veneer/base/cleanup.h"
#include "veneer/server/client.h"
#include "veneer/server/rundir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Send writes that the kernel still keeps to the server. */
static int flush(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || syncfs(fd) < 0 ? -errno : 0;
}

int snapshot_call(const char *path, const char *to, const char *name, char **ret_name, char *err,
		  size_t err_size)
{
	_cleanup_(rundir_release) struct rundir at = { .fd = -1 };
	_cleanup_(freep) char *names = NULL;
	_cleanup_(closep) int fd = -1;
	struct client_target at_mount;
	int r = flush(path) ?: client_target_of(path, &at_mount);

	if (r == 0 && to && asprintf(&names, "%s\n%s", to, name) < 0) {
		names = NULL;
		r = -ENOMEM;
	}
	snprintf(err, err_size, "%s", strerror(-r));
	r = r ?: rundir_open(&at, err, err_size);
	r = r ?: client_connect(&at, false, &fd, err, err_size);
	if (fd < 0 && r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	if (r < 0)
		return r;
	return to ? client_rollback(fd, &at_mount, names, ret_name, err, err_size)
		  : client_snapshot(fd, &at_mount, name, ret_name, err, err_size);
}
