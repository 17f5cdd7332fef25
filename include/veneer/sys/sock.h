/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets that keep messages apart and carry descriptors. Whatever comes over one is
 * close-on-exec, and closed here where it is not handed on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define SOCK_FDS_MAX 128u

/* The socket called name in the directory dirfd: names longer than an address holds are no
 * hindrance. Waits at most timeout_ms for one that is overrun. -ENOENT, -ECONNREFUSED: nobody
 * listens. -EAGAIN: overrun. 0 and *ret_fd, which blocks. */
int sock_connect(int dirfd, const char *name, int timeout_ms, int *ret_fd);
/* Make a socket there and listen; *ret_fd does not block. For its owner only. 0 or -errno
 * (-EADDRINUSE). */
int sock_listen(int dirfd, const char *name, int *ret_fd);
/* The same of sockets that carry a stream, for others than our own programs. */
int sock_connect_stream(int dirfd, const char *name, int timeout_ms, int *ret_fd);
int sock_listen_stream(int dirfd, const char *name, int backlog, int *ret_fd);
/* Is fd, which another process opened, a listening socket of our kind? */
bool sock_is_listening(int fd);
/* Accept one connection of a listening socket; *ret_fd does not block. -EAGAIN: there is none. */
int sock_accept(int fd, int *ret_fd);
/* The maker of the connection: user and process as they were then, in our namespaces. The number
 * may be another process's by now: peer.h. 0 or -errno. */
int sock_peer(int fd, struct ucred *ret);
/* Wait at most timeout_ms (-1: for ever) until a message is there, or the end. 0 or -ETIMEDOUT. */
int sock_wait(int fd, int timeout_ms);
/* Send one message whole, with at most SOCK_FDS_MAX descriptors, which stay the caller's. Waits at
 * most timeout_ms where it would block. 0; -EPIPE: the other side is gone; -ETIMEDOUT; other
 * -errno. */
int sock_send(int fd, const void *p, size_t len, const int *fds, size_t n_fds, int timeout_ms);
/* Take one message, of at most INT_MAX bytes. fds has room for SOCK_FDS_MAX and gets *ret_n, which
 * the caller closes. The message's length; 0: the end; -EAGAIN where fd does not block; -EMSGSIZE:
 * more bytes or descriptors than fit, or than this process may have open. */
int sock_recv(int fd, void *p, size_t size, int *fds, size_t *ret_n);

/* The process that has sent a message. */
struct sock_sender {
	pid_t pid; /* 0: not told */
	int pidfd; /* -1: not told; -ESRCH: the process is gone; else its descriptor */
};

/* From now on sock_recv_from names the process that sends a message. 0 or -errno. */
int sock_name_senders(int fd);
/* The same with its descriptor: 0; -ENOPROTOOPT before Linux 6.5; other -errno. */
int sock_hold_senders(int fd);
/* The end of both. */
void sock_forget_senders(int fd);
/* sock_recv. A descriptor of the sender is the caller's, or closed where ret_sender is NULL. */
int sock_recv_from(int fd, void *p, size_t size, int *fds, size_t *ret_n,
		   struct sock_sender *ret_sender);
void sock_close_fds(int *fds, size_t n);
