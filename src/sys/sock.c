// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/sock.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG	 4096
#define RETRY_MS 5

/* Newer than the headers of the systems that this builds on. */
#define KERNEL_SO_PASSPIDFD 76
#define KERNEL_SCM_PIDFD    0x04

/* Addresses by the directory's descriptor: an address holds only 107 bytes. */
static int address(int dirfd, const char *name, struct sockaddr_un *ret)
{
	int n;

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dirfd, name);
	return n >= (int)sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static int connect_to(int type, int dirfd, const char *name, int timeout_ms, int *ret_fd)
{
	struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
	_cleanup_(closep) int fd = -1;
	struct sockaddr_un to;
	int r = address(dirfd, name, &to);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	do {
		r = connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
	} while (r == -EINTR);
	if (r < 0)
		return r;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int sock_connect(int dirfd, const char *name, int timeout_ms, int *ret_fd)
{
	return connect_to(SOCK_SEQPACKET, dirfd, name, timeout_ms, ret_fd);
}

int sock_connect_stream(int dirfd, const char *name, int timeout_ms, int *ret_fd)
{
	return connect_to(SOCK_STREAM, dirfd, name, timeout_ms, ret_fd);
}

static int listen_as(int type, int dirfd, const char *name, int backlog, int *ret_fd)
{
	_cleanup_(closep) int fd = -1;
	struct sockaddr_un at;
	int r = address(dirfd, name, &at);
	mode_t mask;

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ? -errno : 0;
	umask(mask);
	if (r < 0)
		return r;
	if (listen(fd, backlog) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int sock_listen(int dirfd, const char *name, int *ret_fd)
{
	return listen_as(SOCK_SEQPACKET, dirfd, name, BACKLOG, ret_fd);
}

int sock_listen_stream(int dirfd, const char *name, int backlog, int *ret_fd)
{
	return listen_as(SOCK_STREAM, dirfd, name, backlog, ret_fd);
}

static int option(int fd, int name)
{
	int value = 0;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0 ? -1 : value;
}

bool sock_is_listening(int fd)
{
	return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET &&
	       option(fd, SO_ACCEPTCONN) == 1;
}

int sock_accept(int fd, int *ret_fd)
{
	int got;

	do {
		got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (got < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (got < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	*ret_fd = got;
	return 0;
}

int sock_peer(int fd, struct ucred *ret)
{
	socklen_t size = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &size) < 0 ? -errno : 0;
}

static int wait_for(int fd, short events, int timeout_ms)
{
	const int64_t end = clock_ms() + timeout_ms;
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : end - clock_ms();
		int n = poll(&p, 1, timeout_ms < 0 ? -1 : left < 0 ? 0 : (int)left);

		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int sock_wait(int fd, int timeout_ms)
{
	return wait_for(fd, POLLIN, timeout_ms);
}

int sock_send(int fd, const void *p, size_t len, const int *fds, size_t n_fds, int timeout_ms)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)p, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	const int64_t end = clock_ms() + timeout_ms;

	if (n_fds > SOCK_FDS_MAX)
		return -EINVAL;
	if (n_fds) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	for (;;) {
		if (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		/* This user has too many descriptors in flight, here or in other processes; they
		 * will arrive. */
		if (errno != ETOOMANYREFS && errno != EAGAIN && errno != EWOULDBLOCK)
			return errno == ECONNRESET ? -EPIPE : -errno;
		if (clock_ms() >= end)
			return -ETIMEDOUT;
		if (errno == ETOOMANYREFS)
			usleep(RETRY_MS * 1000);
		else
			wait_for(fd, POLLOUT, (int)(end - clock_ms()));
	}
}

void sock_close_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		closep(&fds[i]);
}

/* Take the descriptors out of the message; close surplus ones, and count them in *ret_more. */
static size_t take_fds(struct msghdr *msg, int *fds, size_t *ret_more)
{
	size_t n = 0;

	*ret_more = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < here; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n < SOCK_FDS_MAX) {
				fds[n++] = fd;
			} else {
				close(fd);
				++*ret_more;
			}
		}
	}
	return n;
}

static int set_option(int fd, int name, int value)
{
	return setsockopt(fd, SOL_SOCKET, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

int sock_name_senders(int fd)
{
	return set_option(fd, SO_PASSCRED, 1);
}

int sock_hold_senders(int fd)
{
	int r = set_option(fd, KERNEL_SO_PASSPIDFD, 1);

	return r < 0 ? r : sock_name_senders(fd);
}

void sock_forget_senders(int fd)
{
	set_option(fd, KERNEL_SO_PASSPIDFD, 0);
	set_option(fd, SO_PASSCRED, 0);
}

static struct sock_sender find_sender(struct msghdr *msg)
{
	struct sock_sender found = { .pidfd = -1 };
	struct ucred cred;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof(cred))) {
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
			found.pid = cred.pid;
		} else if (c->cmsg_type == KERNEL_SCM_PIDFD &&
			   c->cmsg_len >= CMSG_LEN(sizeof(int))) {
			memcpy(&found.pidfd, CMSG_DATA(c), sizeof(int));
			/* The kernel stores its error there. */
			if (found.pidfd < 0)
				found.pidfd = -ESRCH;
		}
	}
	return found;
}

int sock_recv_from(int fd, void *p, size_t size, int *fds, size_t *ret_n,
		   struct sock_sender *ret_sender)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int)) +
					      CMSG_SPACE(sizeof(struct ucred)) +
					      CMSG_SPACE(sizeof(int))];
	struct iovec iov = { p, size };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	bool was_reset = false, is_again;
	struct sock_sender sender;
	size_t more;
	ssize_t n;

	/* The kernel reports a peer that hung up without reading everything once, before its last
	 * messages. */
	do {
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
		is_again = n < 0 && (errno == EINTR || (errno == ECONNRESET && !was_reset));
		was_reset = was_reset || (n < 0 && errno == ECONNRESET);
	} while (is_again);
	*ret_n = 0;
	if (ret_sender)
		*ret_sender = (struct sock_sender){ .pidfd = -1 };
	if (n < 0)
		return errno == ECONNRESET ? 0 : errno == EWOULDBLOCK ? -EAGAIN : -errno;
	*ret_n = take_fds(&msg, fds, &more);
	sender = find_sender(&msg);
	/* An empty message counts as the end, even with descriptors. */
	if (n > 0 && !more && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		if (ret_sender)
			*ret_sender = sender;
		else
			closep(&sender.pidfd);
		return (int)n;
	}
	closep(&sender.pidfd);
	sock_close_fds(fds, *ret_n);
	*ret_n = 0;
	return n > 0 ? -EMSGSIZE : 0;
}

int sock_recv(int fd, void *p, size_t size, int *fds, size_t *ret_n)
{
	return sock_recv_from(fd, p, size, fds, ret_n, NULL);
}
