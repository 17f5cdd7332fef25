// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/service_notify.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FIRST_FD 3

int service_notify_open(void)
{
	_cleanup_(closep) int fd = -1;
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -1;
	memcpy(to.sun_path, path, len);
	/* an abstract address */
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		return -1;
	return steal_fd(&fd);
}

void service_notify_send(int fd, const char *state)
{
	if (fd >= 0)
		(void)!send(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
}

int service_notify_listen_fd(void)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");

	if (!pid || !n || atoi(pid) != getpid() || atoi(n) != 1 ||
	    fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return FIRST_FD;
}
