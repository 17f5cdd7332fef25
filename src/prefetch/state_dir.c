// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/state_dir.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/sock.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEND_MS 1000

static char *below(const char *dir, const char *rest)
{
	char *path;

	return asprintf(&path, "%s/%s", dir, rest) < 0 ? NULL : path;
}

char *state_dir_path(void)
{
	const char *given = getenv("VENEER_STATE_DIR"), *xdg = getenv("XDG_STATE_HOME"),
		   *home = getenv("HOME");

	if (given && given[0] == '/')
		return strdup(given);
	if (xdg && xdg[0] == '/')
		return below(xdg, "veneer");
	/* Root of a user namespace only cannot write there. */
	if (geteuid() == 0 && access("/var/lib", W_OK) == 0)
		return strdup("/var/lib/veneer");
	return home && home[0] == '/' ? below(home, ".local/state/veneer") : NULL;
}

bool state_dir_is_wanted(void)
{
	const char *given = getenv("VENEER_STATE_DIR");

	return !given || *given;
}

/* mkdir -p */
static int make(const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (char *s = copy + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdir(copy, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Open the directory and check it: only its owner can have put anything in it. */
int state_dir_open(const char *path, int is_readonly)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r = is_readonly ? 0 : make(path);

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid != geteuid() || st.st_mode & 0022 ? -EPERM : steal_fd(&fd);
}

/* In a process that nobody waits for. It holds nothing that its caller's caller waits for the end
 * of. */
static void answer(int fd)
{
	_cleanup_(freep) char *path = state_dir_path();
	int32_t word;
	int dir;

	if (dup2(fd, 0) < 0)
		_exit(1);
	close_range(1, ~0u, 0);
	if (chdir("/") < 0)
		_exit(1);
	dir = path ? state_dir_open(path, 0) : -ENOENT;
	word = dir < 0 ? dir : 0;
	sock_send(0, &word, sizeof(word), dir < 0 ? NULL : &dir, dir < 0 ? 0 : 1, SEND_MS);
	_exit(0);
}

int state_dir_ask(void)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		/* Twice, so that it is nobody's child. */
		if (fork() == 0)
			answer(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	if (pid < 0)
		closep(&pair[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return pair[0];
}

int state_dir_answer(int fd)
{
	int fds[SOCK_FDS_MAX], r = sock_wait(fd, 0);
	int32_t word = -EIO;
	size_t n = 0;

	if (r == 0)
		r = sock_recv(fd, &word, sizeof(word), fds, &n);
	if (r < 0)
		return r == -ETIMEDOUT ? -EAGAIN : r;
	r = r != (int)sizeof(word) ? -EIO : word < 0 ? word : n != 1 ? -EIO : 0;
	if (r == 0)
		return fds[0];
	sock_close_fds(fds, n);
	return r;
}
