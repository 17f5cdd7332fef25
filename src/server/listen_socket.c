// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/listen_socket.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/sock.h"

#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BACKLOG	 16
#define PROBE_MS 1000

static int find_file(const char *path, struct listen_socket *ret, char *err, size_t err_size)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_(freep) char *dir = slash ? strndup(path, (size_t)(name - path)) : strdup(".");

	if (!*name || strlen(name) >= sizeof(ret->name) || !strcmp(name, ".") ||
	    !strcmp(name, "..")) {
		snprintf(err, err_size, "%s does not name a socket", path);
		return -EINVAL;
	}
	strcpy(ret->name, name);
	ret->dir_fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (ret->dir_fd < 0) {
		int r = dir ? -errno : -ENOMEM;

		snprintf(err, err_size, "cannot open %s: %s", dir ? dir : path, strerror(-r));
		return r;
	}
	return 0;
}

/* Check the range: the C library takes 70000 for 4464. */
static bool is_port(const char *s)
{
	unsigned n = 0;

	for (const char *p = s; *p >= '0' && *p <= '9' && n <= UINT16_MAX; p++)
		n = n * 10 + (unsigned)(*p - '0');
	return *s && strspn(s, "0123456789") == strlen(s) && n <= UINT16_MAX;
}

static int find_address(const char *where, struct listen_socket *ret, char *err, size_t err_size)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(where, ':');
	const bool has_brackets = colon && where[0] == '[' && colon - where > 2 && colon[-1] == ']';
	struct addrinfo *found = NULL;
	char host[128];

	if (colon && (has_brackets || !memchr(where, ':', (size_t)(colon - where))))
		snprintf(host, sizeof(host), "%.*s", (int)(colon - where) - 2 * has_brackets,
			 where + has_brackets);
	else
		*host = '\0';
	if (!*host || !is_port(colon + 1) || getaddrinfo(host, colon + 1, &hints, &found) != 0) {
		snprintf(err, err_size, "%s is neither unix:PATH nor ADDRESS:PORT", where);
		return -EINVAL;
	}
	memcpy(&ret->at, found->ai_addr, found->ai_addrlen);
	ret->at_len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

int listen_socket_find(const char *where, struct listen_socket *ret, char *err, size_t err_size)
{
	*ret = LISTEN_SOCKET_NONE;
	if (!strncmp(where, "unix:", 5))
		return find_file(where + 5, ret, err, err_size);
	return find_address(where, ret, err, err_size);
}

static int listen_at_file(struct listen_socket *e)
{
	_cleanup_(closep) int probe = -1;
	struct stat st;
	int r = sock_listen_stream(e->dir_fd, e->name, BACKLOG, &e->fd);

	if (r == -EADDRINUSE) {
		r = sock_connect_stream(e->dir_fd, e->name, PROBE_MS, &probe);
		if (r != -ECONNREFUSED ||
		    fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISSOCK(st.st_mode))
			return -EADDRINUSE;
		if (unlinkat(e->dir_fd, e->name, 0) < 0)
			return -errno;
		r = sock_listen_stream(e->dir_fd, e->name, BACKLOG, &e->fd);
	}
	if (r == 0 && fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		e->ino = st.st_ino;
	return r;
}

static int listen_at_address(struct listen_socket *e)
{
	_cleanup_(closep) int fd =
		socket(e->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	/* Connections of a server that has just exited may still wait for their end. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (struct sockaddr *)&e->at, e->at_len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	e->fd = steal_fd(&fd);
	return 0;
}

int listen_socket_listen(struct listen_socket *e)
{
	return e->dir_fd >= 0 ? listen_at_file(e) : listen_at_address(e);
}

void listen_socket_close(struct listen_socket *e)
{
	struct stat st;

	if (e->fd >= 0 && e->dir_fd >= 0 &&
	    fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == e->ino)
		unlinkat(e->dir_fd, e->name, 0);
	closep(&e->fd);
	closep(&e->dir_fd);
}
