/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets that preserve message boundaries and carry descriptors. A received descriptor is
 * close-on-exec, and is closed here if it is not handed on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define SOCK_FDS_MAX 128u

/* Connect to the socket `name` in directory dirfd; names may be longer than an address holds. Waits
 * at most timeout_ms while its backlog is full. -ENOENT, -ECONNREFUSED: nobody listens. -EAGAIN:
 * the backlog stayed full. 0 and *ret_fd, which blocks. */
int sock_connect(int dirfd, const char *name, int timeout_ms, int *ret_fd);
/* Make a socket there and listen; *ret_fd does not block. Only its owner may connect. 0 or -errno
 * (-EADDRINUSE). */
int sock_listen(int dirfd, const char *name, int *ret_fd);
/* The same for stream sockets, for programs other than veneer's. */
int sock_connect_stream(int dirfd, const char *name, int timeout_ms, int *ret_fd);
int sock_listen_stream(int dirfd, const char *name, int backlog, int *ret_fd);
/* Is fd, which another process opened, a listening socket of this kind? */
bool sock_is_listening(int fd);
/* Accept one connection of a listening socket; *ret_fd does not block. -EAGAIN: there is none. */
int sock_accept(int fd, int *ret_fd);
/* The process that made the connection: user and pid at that time, in this process's namespaces.
 * The pid may be another process's by now: peer.h. 0 or -errno. */
int sock_peer(int fd, struct ucred *ret);
/* Wait at most timeout_ms (-1: for ever) for a message or the end of the connection. 0 or
 * -ETIMEDOUT. */
int sock_wait(int fd, int timeout_ms);
/* Send one message whole, with at most SOCK_FDS_MAX descriptors, which stay the caller's. Waits at
 * most timeout_ms if it would block. 0; -EPIPE: the other side is gone; -ETIMEDOUT; other
 * -errno. */
int sock_send(int fd, const void *p, size_t len, const int *fds, size_t n_fds, int timeout_ms);
/* Receive one message, of at most INT_MAX bytes. fds has room for SOCK_FDS_MAX and gets *ret_n,
 * which the caller closes. Returns the message's length; 0: end of the connection; -EAGAIN if fd
 * does not block; -EMSGSIZE: more bytes or descriptors than fit, or than this process may open. */
int sock_recv(int fd, void *p, size_t size, int *fds, size_t *ret_n);

/* The sender of a message. */
struct sock_sender {
	pid_t pid; /* 0: unknown */
	int pidfd; /* -1: none; -ESRCH: the process has ended; else its descriptor */
};

/* From now on sock_recv_from returns the pid of a message's sender. 0 or -errno. */
int sock_name_senders(int fd);
/* The same with its descriptor: 0; -ENOPROTOOPT before Linux 6.5; other -errno. */
int sock_hold_senders(int fd);
/* Undo both. */
void sock_forget_senders(int fd);
/* As sock_recv. A descriptor of the sender becomes the caller's, or is closed if ret_sender is
 * NULL. */
int sock_recv_from(int fd, void *p, size_t size, int *fds, size_t *ret_n,
		   struct sock_sender *ret_sender);
void sock_close_fds(int *fds, size_t n);
