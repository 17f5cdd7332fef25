// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/upper_takeover.h"

#include "veneer/base/cleanup.h"
#include "veneer/mount/workdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#define FIFO_NAME "takeover"

/* Smaller than PIPE_BUF, so it is written and read as a whole. */
struct request {
	uint64_t dev, ino;
};

int upper_takeover_listen(int workfd, int sig, int *ret_fd)
{
	_cleanup_(closep) int fd = -1;

	if (mkfifoat(workfd, FIFO_NAME, 0600) < 0)
		return -errno;
	/* For polling, open it for writing, too: a fifo stays readable after its last writer has
	 * closed it. For a signal, open it only for reading: each read of a fifo signals its
	 * writers, so this process would wake itself for ever. */
	fd = openat(workfd, FIFO_NAME,
		    (sig ? O_RDONLY : O_RDWR) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (sig && (fcntl(fd, F_SETSIG, sig) < 0 || fcntl(fd, F_SETOWN, getpid()) < 0 ||
		    fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC) < 0))
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

bool upper_takeover_is_asked(int fd, dev_t dev, ino_t ino)
{
	bool is_asked = false;
	struct request q;

	while (read(fd, &q, sizeof(q)) == sizeof(q))
		is_asked = is_asked || (q.dev == dev && q.ino == ino);
	return is_asked;
}

static void ask_one(int dirfd, const struct request *q)
{
	_cleanup_(closep) int fd =
		openat(dirfd, FIFO_NAME, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return;
	/* If the pipe is full, it holds requests already. */
	(void)!write(fd, q, sizeof(*q));
}

void upper_takeover_ask(int workdir, dev_t dev, ino_t ino)
{
	const struct request q = { .dev = dev, .ino = ino };
	int parent = openat(workdir, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = parent < 0 ? NULL : fdopendir(parent);
	struct dirent *de;

	if (!d) {
		closep(&parent);
		return;
	}
	while ((de = readdir(d))) {
		_cleanup_(closep) int fd = -1;

		if (strncmp(de->d_name, WORKDIR_PREFIX, strlen(WORKDIR_PREFIX)) != 0)
			continue;
		fd = openat(parent, de->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			ask_one(fd, &q);
	}
	closedir(d);
}
