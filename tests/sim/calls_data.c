// SPDX-License-Identifier: Apache-2.0
/* Descriptors, bytes, sizes, syncs. */
#include "calls.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);
ssize_t __real_read(int fd, void *p, size_t len);
ssize_t __real_write(int fd, const void *p, size_t len);
int __real_fcntl(int fd, int what, ...);
int __real_ftruncate(int fd, off_t size);

/* The object of a path, made where flags say so; or -errno. */
static int open_object(int dirfd, const char *path, int flags, mode_t mode)
{
	struct fds_place p;
	int r = fds_resolve(dirfd, path, &p);

	if (r < 0)
		return r;
	mode = S_IFREG | (mode & 07777);
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return p.ino < 0 ? p.ino : fs_make_nameless(sim->disk, mode);
	if (p.ino >= 0 && flags & O_CREAT && flags & O_EXCL)
		return -EEXIST;
	if (p.ino == -ENOENT && flags & O_CREAT && p.dir)
		return fs_make(sim->disk, p.dir, p.name, mode, 0, NULL);
	return p.ino;
}

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
	const struct disk_image *m;
	int ino = open_object(dirfd, path, flags, mode);

	if (ino < 0)
		return ino;
	m = disk_inode(sim->disk, (uint32_t)ino)->now;
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return fds_new((uint32_t)ino, flags & ~O_TMPFILE, 0);
	if (S_ISLNK(m->mode) && !(flags & O_PATH))
		return -ELOOP;
	if (flags & O_DIRECTORY && !S_ISDIR(m->mode))
		return -ENOTDIR;
	if (S_ISDIR(m->mode) && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH))
		return -EISDIR;
	if (flags & O_TRUNC && S_ISREG(m->mode) && m->size)
		fs_truncate(sim->disk, (uint32_t)ino, 0);
	return fds_new((uint32_t)ino, flags, 0);
}

/* Of the machine's own files only one is always the same. */
static int open_any(int dirfd, const char *path, int flags, mode_t mode)
{
	const bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;

	if (calls_are_early())
		return __real_open(path, flags, mode);
	if (!fds_is_path_ours(dirfd, path)) {
		if (!strcmp(path, "/dev/null"))
			return __real_open(path, flags);
		errno = ENOENT;
		return -1;
	}
	CALLS_FATE(makes ? FATE_NAME : FATE_OPEN, "open");
	return (int)calls_result(open_at(dirfd, path, flags, mode));
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return open_any(dirfd, path, flags, mode);
}
CALLS_ALSO(openat, openat64);

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return open_any(AT_FDCWD, path, flags, mode);
}
CALLS_ALSO(open, open64);

int __wrap___open64_2(const char *path, int flags);
int __wrap___open64_2(const char *path, int flags)
{
	return open_any(AT_FDCWD, path, flags, 0);
}

int __wrap___openat64_2(int dirfd, const char *path, int flags);
int __wrap___openat64_2(int dirfd, const char *path, int flags)
{
	return open_any(dirfd, path, flags, 0);
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
	fate_call(FATE_NOTHING, "close");
	return fds_is_ours(fd) ? (int)calls_result(fds_close(fd)) : __real_close(fd);
}

static ssize_t read_at(int fd, void *p, size_t len, int64_t off)
{
	const uint32_t ino = fds_ino(fd);

	if (!ino)
		return -1;
	CALLS_FATE(FATE_READ, "read");
	return calls_result(fs_read(sim->disk, ino, p, fate_short(len, off), off));
}

ssize_t __wrap_pread(int fd, void *p, size_t len, off_t off);
ssize_t __wrap_pread(int fd, void *p, size_t len, off_t off)
{
	return read_at(fd, p, len, off);
}
CALLS_ALSO(pread, pread64);

ssize_t __wrap_read(int fd, void *p, size_t len);
ssize_t __wrap_read(int fd, void *p, size_t len)
{
	struct sim_fd *f;
	ssize_t n;

	if (!fds_is_ours(fd))
		return __real_read(fd, p, len);
	f = fds_get(fd);
	n = f ? read_at(fd, p, len, f->pos) : -1;
	if (n > 0)
		f->pos += n;
	return n;
}

static ssize_t write_at(int fd, const void *p, size_t len, int64_t off)
{
	const struct sim_fd *f = fds_get(fd);

	if (!f)
		return -1;
	if ((f->flags & O_ACCMODE) == O_RDONLY || f->flags & O_PATH) {
		errno = EBADF;
		return -1;
	}
	CALLS_FATE(FATE_WRITE, "pwrite");
	len = fate_short(len, off);
	sim_trace(2, "   pwrite ino %u %zu at %lld", f->ino, len, (long long)off);
	return calls_result(fs_write(sim->disk, f->ino, p, len, off));
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t len, off_t off);
ssize_t __wrap_pwrite(int fd, const void *p, size_t len, off_t off)
{
	return write_at(fd, p, len, off);
}
CALLS_ALSO(pwrite, pwrite64);

ssize_t __wrap_pwritev(int fd, const struct iovec *iov, int n, off_t off);
ssize_t __wrap_pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
	size_t len = 0;
	ssize_t done;
	char *all;

	for (int k = 0; k < n; k++)
		len += iov[k].iov_len;
	all = malloc(len + 1);
	if (!all)
		sim_give_up("out of memory");
	len = 0;
	for (int k = 0; k < n; k++) {
		memcpy(all + len, iov[k].iov_base, iov[k].iov_len);
		len += iov[k].iov_len;
	}
	done = write_at(fd, all, len, off);
	free(all);
	return done;
}
CALLS_ALSO(pwritev, pwritev64);

ssize_t __wrap_write(int fd, const void *p, size_t len);
ssize_t __wrap_write(int fd, const void *p, size_t len)
{
	struct sim_fd *f;
	ssize_t n;

	if (!fds_is_ours(fd))
		return __real_write(fd, p, len);
	f = fds_get(fd);
	n = f ? write_at(fd, p, len, f->pos) : -1;
	if (n > 0)
		f->pos += n;
	return n;
}

off_t __wrap_lseek(int fd, off_t off, int whence);
off_t __wrap_lseek(int fd, off_t off, int whence)
{
	struct sim_fd *f = fds_get(fd);

	if (!f)
		return -1;
	if (whence == SEEK_DATA || whence == SEEK_HOLE) {
		CALLS_FATE(FATE_READ, "lseek");
		return calls_result(fs_seek(sim->disk, f->ino, off, whence));
	}
	if (whence != SEEK_SET)
		sim_give_up("lseek %d", whence);
	f->pos = off;
	return off;
}
CALLS_ALSO(lseek, lseek64);

ssize_t __wrap_copy_file_range(int in, off_t *in_off, int out, off_t *out_off, size_t len,
			       unsigned flags);
ssize_t __wrap_copy_file_range(int in, off_t *in_off, int out, off_t *out_off, size_t len,
			       unsigned flags)
{
	const uint32_t from = fds_ino(in), to = fds_ino(out);
	int64_t n;
	char *p;

	(void)flags;
	if (!from || !to)
		return -1;
	CALLS_FATE(FATE_WRITE, "copy_file_range");
	len = fate_short(len > DISK_FILE_BYTES ? DISK_FILE_BYTES : len, *out_off);
	p = malloc(len + 1);
	if (!p)
		sim_give_up("out of memory");
	n = fs_read(sim->disk, from, p, len, *in_off);
	if (n > 0)
		n = fs_write(sim->disk, to, p, (size_t)n, *out_off);
	free(p);
	if (n > 0) {
		*in_off += n;
		*out_off += n;
	}
	return calls_result(n);
}

int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
	int ino;

	(void)name, (void)flags;
	fate_call(FATE_NOTHING, "memfd_create");
	ino = fs_make_nameless(sim->disk, S_IFREG | 0600);
	return (int)calls_result(ino < 0 ? ino : fds_new((uint32_t)ino, O_RDWR, 0));
}

int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
	const uint32_t ino = fds_is_ours(fd) ? fds_ino(fd) : 0;

	if (!fds_is_ours(fd))
		return __real_ftruncate(fd, size);
	if (!ino)
		return -1;
	CALLS_FATE(FATE_SIZE, "ftruncate");
	sim_trace(2, "   ftruncate ino %u to %lld", ino, (long long)size);
	return (int)calls_result(fs_truncate(sim->disk, ino, size));
}
CALLS_ALSO(ftruncate, ftruncate64);

int __wrap_fallocate(int fd, int mode, off_t off, off_t len);
int __wrap_fallocate(int fd, int mode, off_t off, off_t len)
{
	const uint32_t ino = fds_ino(fd);

	if (!ino)
		return -1;
	CALLS_FATE(FATE_SIZE, "fallocate");
	sim_trace(2, "   fallocate ino %u mode %d %lld at %lld", ino, mode, (long long)len,
		  (long long)off);
	return (int)calls_result(fs_fallocate(sim->disk, ino, mode, off, len));
}
CALLS_ALSO(fallocate, fallocate64);

static bool is_map(uint32_t ino)
{
	return disk_inode(sim->disk, ino)->is_torn;
}

/* Does a planted fault take this sync away? */
static bool is_planted_away(uint32_t ino)
{
	const struct disk_image *m = disk_inode(sim->disk, ino)->now;

	switch (fate_planted) {
	case FATE_PLANT_MAP_SYNC:
		return is_map(ino);
	case FATE_PLANT_DATA_SYNC:
		return S_ISREG(m->mode) && !is_map(ino) && m->nlink;
	case FATE_PLANT_NAME_SYNC:
		return S_ISREG(m->mode) && !is_map(ino) && !m->nlink;
	default:
		return false;
	}
}

static int sync_one(int fd, bool data_only)
{
	const uint32_t ino = fds_ino(fd);

	if (!ino)
		return -1;
	CALLS_FATE(FATE_SYNC, data_only ? "fdatasync" : "fsync");
	sim_trace(2, "   %s ino %u%s", data_only ? "fdatasync" : "fsync", ino,
		  is_map(ino) ? " (the map)" : "");
	if (!is_planted_away(ino))
		disk_sync(sim->disk, ino, data_only, &sim->kernel);
	return 0;
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	return sync_one(fd, false);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	return sync_one(fd, true);
}

int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
	if (!fds_ino(fd))
		return -1;
	CALLS_FATE(FATE_SYNC, "syncfs");
	disk_sync_all(sim->disk);
	return 0;
}

int __wrap_sync_file_range(int fd, off_t off, off_t len, unsigned flags);
int __wrap_sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
	const uint32_t ino = fds_ino(fd);

	(void)off, (void)len, (void)flags;
	if (!ino)
		return -1;
	CALLS_FATE(FATE_SYNC, "sync_file_range");
	disk_write_back_all(sim->disk, ino);
	return 0;
}
CALLS_ALSO(sync_file_range, sync_file_range64);

int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
	const uint32_t ino = fds_ino(fd);
	struct disk_inode *i;

	if (!ino)
		return -1;
	i = disk_inode(sim->disk, ino);
	if (how & LOCK_UN) {
		i->lock = i->lock == fd ? 0 : i->lock;
		return 0;
	}
	if (i->lock && i->lock != fd) {
		errno = EWOULDBLOCK;
		return -1;
	}
	i->lock = fd;
	return 0;
}

int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
	struct sim_fd *f;
	va_list ap;
	long arg;

	va_start(ap, what);
	arg = va_arg(ap, long);
	va_end(ap);
	if (!fds_is_ours(fd))
		return __real_fcntl(fd, what, arg);
	f = fds_get(fd);
	if (!f)
		return -1;
	switch (what) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		return (int)calls_result(fds_new(f->ino, f->flags, (int)arg));
	case F_GETFL:
		return f->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC);
	case F_GETFD:
	case F_SETFL:
	case F_SETFD:
		return 0;
	default:
		errno = EINVAL;
		return -1;
	}
}
CALLS_ALSO(fcntl, fcntl64);
