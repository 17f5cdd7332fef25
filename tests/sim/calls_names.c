// SPDX-License-Identifier: Apache-2.0
/* Names and listings. */
#include "calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A listing under way, in place of the C library's. */
struct listing {
	int fd;
	struct dirent entry;
};

uint32_t calls_object(int dirfd, const char *path)
{
	struct fds_place p;
	int r = fds_resolve(dirfd, path, &p);

	r = r < 0 ? r : p.ino;
	if (r < 0)
		errno = -r;
	return r < 0 ? 0 : (uint32_t)r;
}

/* The name that a path ends with; its directory is there. */
static int resolve_name(int dirfd, const char *path, struct fds_place *ret)
{
	int r = fds_resolve(dirfd, path, ret);

	return r == 0 && !ret->dir ? -EEXIST : r;
}

static int make(int dirfd, const char *path, mode_t mode, dev_t rdev, const char *target)
{
	struct fds_place p;
	int r;

	CALLS_FATE(FATE_NAME, "mkdirat, mknodat or symlinkat");
	r = resolve_name(dirfd, path, &p);
	if (r == 0)
		r = fs_make(sim->disk, p.dir, p.name, mode, rdev, target);
	sim_trace(2, "   make %s mode %o: %d", path, mode, r);
	return calls_result(r) < 0 ? -1 : 0;
}

int __wrap_mkdirat(int dirfd, const char *path, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *path, mode_t mode)
{
	return make(dirfd, path, S_IFDIR | (mode & 07777), 0, NULL);
}

int __wrap_mknodat(int dirfd, const char *path, mode_t mode, dev_t rdev);
int __wrap_mknodat(int dirfd, const char *path, mode_t mode, dev_t rdev)
{
	return make(dirfd, path, mode & S_IFMT ? mode : mode | S_IFREG, rdev, NULL);
}

int __wrap_mkfifoat(int dirfd, const char *path, mode_t mode);
int __wrap_mkfifoat(int dirfd, const char *path, mode_t mode)
{
	return make(dirfd, path, S_IFIFO | (mode & 07777), 0, NULL);
}

int __wrap_symlinkat(const char *target, int dirfd, const char *path);
int __wrap_symlinkat(const char *target, int dirfd, const char *path)
{
	return make(dirfd, path, S_IFLNK | 0777, 0, target);
}

int __wrap_linkat(int from, const char *old, int to, const char *new, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *new, int flags)
{
	struct fds_place p;
	uint32_t ino;
	int r;

	(void)flags;
	CALLS_FATE(FATE_NAME, "linkat");
	ino = calls_object(from, old);
	if (!ino)
		return -1;
	r = resolve_name(to, new, &p);
	if (r == 0)
		r = fs_link(sim->disk, ino, p.dir, p.name);
	sim_trace(2, "   link ino %u as %s: %d", ino, new, r);
	return (int)calls_result(r);
}

int __wrap_unlinkat(int dirfd, const char *path, int flags);
int __wrap_unlinkat(int dirfd, const char *path, int flags)
{
	struct fds_place p;
	int r = resolve_name(dirfd, path, &p);

	/* What is not there is known without a change of the disk. */
	r = r < 0 ? r : p.ino < 0 ? p.ino : 0;
	if (r < 0) {
		fate_call(FATE_NOTHING, "unlinkat");
		return (int)calls_result(r);
	}
	CALLS_FATE(FATE_NAME, "unlinkat");
	r = fs_unlink(sim->disk, p.dir, p.name, flags & AT_REMOVEDIR);
	sim_trace(2, "   unlink %s: %d", path, r);
	return (int)calls_result(r);
}

int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
	struct fds_place a, b;
	int r;

	CALLS_FATE(FATE_NAME, "renameat2");
	r = resolve_name(from, old, &a);
	r = r < 0 ? r : resolve_name(to, new, &b);
	if (r == 0)
		r = fs_rename(sim->disk, &(struct fs_place){ a.dir, a.name },
			      &(struct fs_place){ b.dir, b.name }, flags);
	sim_trace(2, "   rename %s to %s flags %u: %d", old, new, flags, r);
	return (int)calls_result(r);
}

int __wrap_renameat(int from, const char *old, int to, const char *new);
int __wrap_renameat(int from, const char *old, int to, const char *new)
{
	return __wrap_renameat2(from, old, to, new, 0);
}

ssize_t __wrap_readlinkat(int dirfd, const char *path, char *p, size_t size);
ssize_t __wrap_readlinkat(int dirfd, const char *path, char *p, size_t size)
{
	const uint32_t ino = calls_object(dirfd, path);
	const struct disk_image *m = ino ? disk_inode(sim->disk, ino)->now : NULL;
	size_t len;

	if (!m)
		return -1;
	if (!m->target) {
		errno = EINVAL;
		return -1;
	}
	len = strlen(m->target);
	len = len < size ? len : size;
	memcpy(p, m->target, len);
	return (ssize_t)len;
}

/* The k-th entry, the first two of which are there always. */
static bool entry_at(uint32_t dir, size_t k, struct dirent *ret)
{
	const struct disk_image *m = disk_inode(sim->disk, dir)->now;
	const char *name = k == 0 ? "." : "..";
	uint32_t ino = k == 0 ? dir : m->parent;
	mode_t mode = S_IFDIR;

	if (k >= m->nentries + 2)
		return false;
	if (k >= 2) {
		name = m->entries[k - 2].name;
		ino = m->entries[k - 2].ino;
		mode = disk_inode(sim->disk, ino)->now->mode;
	}
	*ret = (struct dirent){ .d_ino = ino, .d_off = (off_t)k + 1, .d_type = IFTODT(mode) };
	ret->d_reclen =
		(unsigned short)((offsetof(struct dirent, d_name) + strlen(name) + 8) / 8 * 8);
	strcpy(ret->d_name, name);
	return true;
}

ssize_t __wrap_getdents64(int fd, void *p, size_t size);
ssize_t __wrap_getdents64(int fd, void *p, size_t size)
{
	struct sim_fd *f = fds_get(fd);
	struct dirent e;
	size_t len = 0;

	if (!f)
		return -1;
	CALLS_FATE(FATE_READ, "getdents64");
	while (entry_at(f->ino, (size_t)f->pos, &e) && len + e.d_reclen <= size) {
		memcpy((char *)p + len, &e, e.d_reclen);
		len += e.d_reclen;
		f->pos++;
	}
	return (ssize_t)len;
}

DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
	struct listing *l = fds_ino(fd) ? malloc(sizeof(*l)) : NULL;

	if (l)
		*l = (struct listing){ .fd = fd };
	return (DIR *)l;
}

DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
	(void)path;
	errno = ENOENT;
	return NULL;
}

/* A directory that loses names while it is read shows the others, as those of the kernel do. */
struct dirent *__wrap_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir)
{
	struct listing *l = (struct listing *)dir;
	struct sim_fd *f = fds_get(l->fd);
	int error = fate_call(FATE_READ, "readdir");

	if (!f || error) {
		errno = error ?: EBADF;
		return NULL;
	}
	if (!entry_at(f->ino, (size_t)f->pos, &l->entry))
		return NULL;
	f->pos++;
	return &l->entry;
}

CALLS_ALSO(readdir, readdir64);

int __wrap_closedir(DIR *dir);
int __wrap_closedir(DIR *dir)
{
	struct listing *l = (struct listing *)dir;

	fds_close(l->fd);
	free(l);
	return 0;
}
