// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -errno: the file system does not support it, or it could not be named later. */
static int open_nameless(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_(freep) char *dir = slash ? strndup(path, (size_t)(slash - path) + 1)
					   : strdup(".");
	int fd;

	if (!dir || !*name || strlen(name) > NAME_MAX || access("/proc/self/fd", F_OK) < 0)
		return -EINVAL;
	fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	return fd < 0 ? -errno : fd;
}

static int open_file(struct output_file *to)
{
	struct stat st;

	if (lstat(to->path, &st) == 0)
		return -EEXIST;
	to->fd = open_nameless(to->path);
	to->is_nameless = to->fd >= 0;
	if (to->fd < 0)
		to->fd = open(to->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return to->fd < 0 ? -errno : 0;
}

static const char *output_name(const struct output_file *to)
{
	return to->path ? to->path : "standard output";
}

int output_file_open(struct output_file *to)
{
	int r;

	if (!to->path && isatty(STDOUT_FILENO)) {
		log_error("an archive is not for a terminal: name a file with -o FILE, or "
			  "redirect the output");
		return -EINVAL;
	}
	if (to->path)
		r = open_file(to);
	else
		r = (to->fd = dup(STDOUT_FILENO)) < 0 ? -errno : 0;
	if (r < 0)
		log_error("%s: %s", output_name(to), strerror(-r));
	return r;
}

int output_file_close(struct output_file *to, int r)
{
	char proc[64];
	int e = 0;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", to->fd);
	if (r == 0 && to->is_nameless &&
	    linkat(AT_FDCWD, proc, AT_FDCWD, to->path, AT_SYMLINK_FOLLOW) < 0)
		e = -errno;
	/* A remote or full file system reports some errors only at close. */
	if (close(to->fd) < 0 && r == 0 && e == 0)
		e = -errno;
	if (e < 0)
		log_error("%s: %s", output_name(to), strerror(-e));
	if (to->path && !to->is_nameless && (r < 0 || e < 0))
		unlink(to->path);
	return r ?: e;
}
