/* SPDX-License-Identifier: Apache-2.0 */
/* A stream socket for clients other than mount programs (metrics), in two steps: finding the place
 * uses the paths of the process that starts the server; listening may have to wait until the
 * previous server has gone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct listen_socket {
	int fd; /* listening, or -1 */
	int dir_fd; /* of a socket in the file system, or -1 */
	ino_t ino; /* its inode */
	char name[64]; /* its name there */
	struct sockaddr_storage at; /* else: the address */
	socklen_t at_len;
};

/* No listening socket. */
#define LISTEN_SOCKET_NONE ((struct listen_socket){ .fd = -1, .dir_fd = -1 })

/* "unix:PATH", "ADDRESS:PORT" or "[ADDRESS]:PORT", all numbers. Nothing is made yet. 0, or -errno
 * and a sentence. */
int listen_socket_find(const char *where, struct listen_socket *ret, char *err, size_t err_size);
/* Listen there: at a socket for its owner only (mode 0600), in place of one that nobody listens at.
 * 0, or -errno: -EADDRINUSE where another process does. */
int listen_socket_listen(struct listen_socket *e);
/* Stop listening, and remove the socket from the file system if it is still ours. */
void listen_socket_close(struct listen_socket *e);
