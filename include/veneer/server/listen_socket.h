/* SPDX-License-Identifier: Apache-2.0 */
/* A stream socket for clients other than mount programs (metrics), set up in two steps. Finding the
 * place needs the paths of the process that starts the server. Listening may have to wait until the
 * previous server has gone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct listen_socket {
	int fd; /* listening, or -1 */
	int dir_fd; /* directory of a socket in the file system, or -1 */
	ino_t ino; /* of the socket in dir_fd */
	char name[64]; /* of the socket in dir_fd */
	struct sockaddr_storage at; /* address, if dir_fd is -1 */
	socklen_t at_len;
};

/* No listening socket. */
#define LISTEN_SOCKET_NONE ((struct listen_socket){ .fd = -1, .dir_fd = -1 })

/* Parse "unix:PATH", "ADDRESS:PORT" or "[ADDRESS]:PORT", all numeric. Creates nothing. 0, or -errno
 * and a sentence. */
int listen_socket_find(const char *where, struct listen_socket *ret, char *err, size_t err_size);
/* Listen at the place. A socket in the file system has mode 0600 and replaces a socket without a
 * listener. 0, or -errno: -EADDRINUSE where another process listens. */
int listen_socket_listen(struct listen_socket *e);
/* Stop listening, and remove the socket from the file system if it is still this one. */
void listen_socket_close(struct listen_socket *e);
