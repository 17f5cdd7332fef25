// SPDX-License-Identifier: Apache-2.0
#include "fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct sim_fd *fds_get(int fd)
{
	struct sim_fd *f = fds_is_ours(fd) && fd < SIM_FD_FIRST + SIM_FDS
				   ? &sim->fds[fd - SIM_FD_FIRST]
				   : NULL;

	if (f && f->is_open)
		return f;
	errno = EBADF;
	return NULL;
}

uint32_t fds_ino(int fd)
{
	const struct sim_fd *f = fds_get(fd);

	return f ? f->ino : 0;
}

int fds_new(uint32_t ino, int flags, int least)
{
	for (int k = least > SIM_FD_FIRST ? least - SIM_FD_FIRST : 0; k < SIM_FDS; k++) {
		if (sim->fds[k].is_open)
			continue;
		sim->fds[k] = (struct sim_fd){ .is_open = true, .ino = ino, .flags = flags };
		disk_inode(sim->disk, ino)->opens++;
		return SIM_FD_FIRST + k;
	}
	return -EMFILE;
}

int fds_close(int fd)
{
	struct sim_fd *f = fds_get(fd);
	struct disk_inode *i;

	if (!f)
		return -EBADF;
	f->is_open = false;
	i = disk_inode(sim->disk, f->ino);
	if (i->lock == fd)
		i->lock = 0;
	i->opens--;
	disk_reap(sim->disk, f->ino);
	return 0;
}

void fds_close_all(void)
{
	for (int k = 0; k < SIM_FDS; k++)
		if (sim->fds[k].is_open)
			fds_close(SIM_FD_FIRST + k);
}

static const char proc[] = "/proc/self/fd/";

/* "/proc/self/fd/N": N, and the rest of the path; -1: none. */
static int proc_fd(const char *path, const char **ret_rest)
{
	char *end;
	long fd;

	if (strncmp(path, proc, sizeof(proc) - 1) != 0)
		return -1;
	fd = strtol(path + sizeof(proc) - 1, &end, 10);
	*ret_rest = end;
	return (int)fd;
}

bool fds_is_path_ours(int dirfd, const char *path)
{
	static const char *const tops[] = { "/lower", "/upper", "/work" };
	const char *rest;

	if (*path != '/')
		return fds_is_ours(dirfd);
	if (!strcmp(path, "/") || fds_is_ours(proc_fd(path, &rest)))
		return true;
	for (size_t k = 0; k < sizeof(tops) / sizeof(*tops); k++)
		if (!strncmp(path, tops[k], strlen(tops[k])))
			return true;
	return false;
}

static int walk(uint32_t dir, const char *path, struct fds_place *ret)
{
	while (*path == '/')
		path++;
	if (!*path) {
		*ret = (struct fds_place){ .ino = (int)dir };
		return 0;
	}
	for (;;) {
		const size_t len = strcspn(path, "/");
		const char *next = path + len + strspn(path + len, "/");
		int ino;

		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		*ret = (struct fds_place){ .dir = dir };
		memcpy(ret->name, path, len);
		ino = fs_look_up(sim->disk, dir, ret->name);
		if (!*next) {
			ret->ino = ino;
			if (ino == -ENOTDIR || ino == -ENAMETOOLONG)
				return ino;
			return 0;
		}
		if (ino < 0)
			return ino;
		if (S_ISLNK(disk_inode(sim->disk, (uint32_t)ino)->now->mode))
			return -ELOOP;
		dir = (uint32_t)ino;
		path = next;
	}
}

int fds_resolve(int dirfd, const char *path, struct fds_place *ret)
{
	const char *rest = path;
	uint32_t dir;
	int fd = proc_fd(path, &rest);

	if (fd >= 0)
		dir = fds_ino(fd);
	else
		dir = *path == '/' ? DISK_ROOT : fds_ino(dirfd);
	return dir ? walk(dir, rest, ret) : fd >= 0 ? -ENOENT : -EBADF;
}
