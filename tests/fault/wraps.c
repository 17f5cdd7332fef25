// SPDX-License-Identifier: Apache-2.0
/* Every call of the program that can fail, by the name it has with large files: one line each. */
#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ALLOC(type, name, params, args) FAULT_WRAP_AS(FAULT_ALLOC, NULL, type, name, params, args)

ALLOC(void *, malloc, (size_t size), (size))
ALLOC(void *, calloc, (size_t n, size_t size), (n, size))
ALLOC(void *, realloc, (void *p, size_t size), (p, size))
ALLOC(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size))
ALLOC(void *, aligned_alloc, (size_t align, size_t size), (align, size))
FAULT_WRAP_AS(FAULT_ALLOC, ENOMEM, int, posix_memalign, (void **ret, size_t align, size_t size),
	      (ret, align, size))

/* glibc's fortified opens have no mode. */
int __open64_2(const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);
FAULT_WRAP(FAULT_OPEN, int, __open64_2, (const char *path, int flags), (path, flags))
FAULT_WRAP(FAULT_OPEN, int, __openat64_2, (int dirfd, const char *path, int flags),
	   (dirfd, path, flags))
FAULT_WRAP_AS(FAULT_OPEN, NULL, FILE *, fopen64, (const char *path, const char *mode), (path, mode))
FAULT_WRAP_AS(FAULT_OPEN, NULL, DIR *, opendir, (const char *path), (path))

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return fault_hits(FAULT_OPEN) ? -1 : FAULT_REAL(open64)(path, flags, mode);
}

int openat64(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return fault_hits(FAULT_OPEN) ? -1 : FAULT_REAL(openat64)(dirfd, path, flags, mode);
}

#define MOVES_BYTES(which, name, type, params, args)                                \
	ssize_t name params                                                         \
	{                                                                           \
		return fault_hits_io(which, fd, &len) ? -1 : FAULT_REAL(name) args; \
	}

MOVES_BYTES(FAULT_READ, read, ssize_t, (int fd, void *p, size_t len), (fd, p, len))
MOVES_BYTES(FAULT_READ, pread64, ssize_t, (int fd, void *p, size_t len, off64_t off),
	    (fd, p, len, off))
MOVES_BYTES(FAULT_WRITE, write, ssize_t, (int fd, const void *p, size_t len), (fd, p, len))
MOVES_BYTES(FAULT_WRITE, pwrite64, ssize_t, (int fd, const void *p, size_t len, off64_t off),
	    (fd, p, len, off))

ssize_t copy_file_range(int in, off64_t *in_off, int out, off64_t *out_off, size_t len,
			unsigned flags)
{
	return fault_hits_io(FAULT_SIZE, in, &len)
		       ? -1
		       : FAULT_REAL(copy_file_range)(in, in_off, out, out_off, len, flags);
}

FAULT_WRAP(FAULT_READ, ssize_t, preadv64v2,
	   (int fd, const struct iovec *iov, int n, off64_t off, int flags),
	   (fd, iov, n, off, flags))
FAULT_WRAP(FAULT_READ, ssize_t, getrandom, (void *p, size_t len, unsigned flags), (p, len, flags))

static size_t bytes_of(const struct iovec *iov, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* At most len bytes of a short list; longer ones come from no caller that we have. */
static int cut(const struct iovec *iov, int n, size_t len, struct iovec cut[8])
{
	int i;

	for (i = 0; i < n && i < 8 && len; i++) {
		cut[i] = iov[i];
		if (cut[i].iov_len > len)
			cut[i].iov_len = len;
		len -= cut[i].iov_len;
	}
	return i;
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	size_t all = bytes_of(iov, n), len = all;
	struct iovec part[8];

	if (fault_hits_io(FAULT_WRITE, fd, &len))
		return -1;
	return len == all ? FAULT_REAL(writev)(fd, iov, n)
			  : FAULT_REAL(writev)(fd, part, cut(iov, n, len, part));
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off)
{
	size_t all = bytes_of(iov, n), len = all;
	struct iovec part[8];

	if (fault_hits_io(FAULT_WRITE, fd, &len))
		return -1;
	return len == all ? FAULT_REAL(pwritev64)(fd, iov, n, off)
			  : FAULT_REAL(pwritev64)(fd, part, cut(iov, n, len, part), off);
}

FAULT_WRAP(FAULT_STAT, int, fstat64, (int fd, struct stat64 *st), (fd, st))
FAULT_WRAP(FAULT_STAT, int, stat64, (const char *path, struct stat64 *st), (path, st))
FAULT_WRAP(FAULT_STAT, int, fstatat64, (int dirfd, const char *path, struct stat64 *st, int flags),
	   (dirfd, path, st, flags))
FAULT_WRAP(FAULT_STAT, int, statx,
	   (int dirfd, const char *path, int flags, unsigned mask, struct statx *st),
	   (dirfd, path, flags, mask, st))
FAULT_WRAP(FAULT_STAT, int, fstatfs64, (int fd, struct statfs64 *st), (fd, st))
FAULT_WRAP(FAULT_STAT, int, fstatvfs64, (int fd, struct statvfs64 *st), (fd, st))
FAULT_WRAP(FAULT_STAT, int, lstat64, (const char *path, struct stat64 *st), (path, st))
FAULT_WRAP(FAULT_STAT, int, access, (const char *path, int mode), (path, mode))
FAULT_WRAP(FAULT_STAT, int, faccessat, (int dirfd, const char *path, int mode, int flags),
	   (dirfd, path, mode, flags))
FAULT_WRAP(FAULT_STAT, ssize_t, readlink, (const char *path, char *p, size_t size), (path, p, size))
/* glibc's fortified one knows how much room there is. */
char *__realpath_chk(const char *path, char *resolved, size_t room);
FAULT_WRAP_AS(FAULT_STAT, NULL, char *, __realpath_chk,
	      (const char *path, char *resolved, size_t room), (path, resolved, room))
FAULT_WRAP_AS(FAULT_STAT, NULL, char *, getcwd, (char *p, size_t size), (p, size))
FAULT_WRAP_AS(FAULT_STAT, NULL, char *, realpath, (const char *path, char *resolved),
	      (path, resolved))
FAULT_WRAP(FAULT_STAT, ssize_t, readlinkat, (int dirfd, const char *path, char *p, size_t size),
	   (dirfd, path, p, size))
FAULT_WRAP(FAULT_STAT, off64_t, lseek64, (int fd, off64_t off, int whence), (fd, off, whence))

FAULT_WRAP(FAULT_XATTR_READ, ssize_t, fgetxattr, (int fd, const char *name, void *p, size_t size),
	   (fd, name, p, size))
FAULT_WRAP(FAULT_XATTR_READ, ssize_t, getxattr,
	   (const char *path, const char *name, void *p, size_t size), (path, name, p, size))
FAULT_WRAP(FAULT_XATTR_READ, ssize_t, lgetxattr,
	   (const char *path, const char *name, void *p, size_t size), (path, name, p, size))
FAULT_WRAP(FAULT_XATTR_READ, ssize_t, flistxattr, (int fd, char *p, size_t size), (fd, p, size))
FAULT_WRAP(FAULT_XATTR_READ, ssize_t, listxattr, (const char *path, char *p, size_t size),
	   (path, p, size))
FAULT_WRAP(FAULT_XATTR_READ, ssize_t, llistxattr, (const char *path, char *p, size_t size),
	   (path, p, size))
FAULT_WRAP(FAULT_XATTR_WRITE, int, fsetxattr,
	   (int fd, const char *name, const void *p, size_t size, int flags),
	   (fd, name, p, size, flags))
FAULT_WRAP(FAULT_XATTR_WRITE, int, setxattr,
	   (const char *path, const char *name, const void *p, size_t size, int flags),
	   (path, name, p, size, flags))
FAULT_WRAP(FAULT_XATTR_WRITE, int, lsetxattr,
	   (const char *path, const char *name, const void *p, size_t size, int flags),
	   (path, name, p, size, flags))
FAULT_WRAP(FAULT_XATTR_WRITE, int, fremovexattr, (int fd, const char *name), (fd, name))
FAULT_WRAP(FAULT_XATTR_WRITE, int, removexattr, (const char *path, const char *name), (path, name))
FAULT_WRAP(FAULT_XATTR_WRITE, int, lremovexattr, (const char *path, const char *name), (path, name))

FAULT_WRAP(FAULT_NAME, int, renameat, (int from, const char *old, int to, const char *new),
	   (from, old, to, new))
FAULT_WRAP(FAULT_NAME, int, renameat2,
	   (int from, const char *old, int to, const char *new, unsigned flags),
	   (from, old, to, new, flags))
FAULT_WRAP(FAULT_NAME, int, linkat, (int from, const char *old, int to, const char *new, int flags),
	   (from, old, to, new, flags))
FAULT_WRAP(FAULT_NAME, int, unlinkat, (int dirfd, const char *name, int flags),
	   (dirfd, name, flags))
FAULT_WRAP(FAULT_NAME, int, unlink, (const char *path), (path))
FAULT_WRAP(FAULT_NAME, int, mkdirat, (int dirfd, const char *name, mode_t mode),
	   (dirfd, name, mode))
FAULT_WRAP(FAULT_NAME, int, mkdir, (const char *name, mode_t mode), (name, mode))
FAULT_WRAP(FAULT_NAME, int, mkfifoat, (int dirfd, const char *name, mode_t mode),
	   (dirfd, name, mode))
FAULT_WRAP(FAULT_NAME, int, mknodat, (int dirfd, const char *name, mode_t mode, dev_t dev),
	   (dirfd, name, mode, dev))
FAULT_WRAP(FAULT_NAME, int, symlinkat, (const char *target, int dirfd, const char *name),
	   (target, dirfd, name))

FAULT_WRAP(FAULT_SIZE, int, ftruncate64, (int fd, off64_t size), (fd, size))
FAULT_WRAP(FAULT_SIZE, int, fallocate64, (int fd, int mode, off64_t off, off64_t len),
	   (fd, mode, off, len))

FAULT_WRAP(FAULT_ATTR, int, fchmod, (int fd, mode_t mode), (fd, mode))
FAULT_WRAP(FAULT_ATTR, int, chmod, (const char *path, mode_t mode), (path, mode))
FAULT_WRAP(FAULT_ATTR, int, fchmodat, (int dirfd, const char *path, mode_t mode, int flags),
	   (dirfd, path, mode, flags))
FAULT_WRAP(FAULT_ATTR, int, fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid))
FAULT_WRAP(FAULT_ATTR, int, fchownat,
	   (int dirfd, const char *path, uid_t uid, gid_t gid, int flags),
	   (dirfd, path, uid, gid, flags))
FAULT_WRAP(FAULT_ATTR, int, futimens, (int fd, const struct timespec t[2]), (fd, t))
FAULT_WRAP(FAULT_ATTR, int, utimensat,
	   (int dirfd, const char *path, const struct timespec t[2], int flags),
	   (dirfd, path, t, flags))
FAULT_WRAP(FAULT_ATTR, int, flock, (int fd, int how), (fd, how))
FAULT_WRAP(FAULT_ATTR, int, name_to_handle_at,
	   (int fd, const char *name, struct file_handle *handle, int *mount, int flags),
	   (fd, name, handle, mount, flags))

FAULT_WRAP(FAULT_SYNC, int, fsync, (int fd), (fd))
FAULT_WRAP(FAULT_SYNC, int, fdatasync, (int fd), (fd))
FAULT_WRAP(FAULT_SYNC, int, syncfs, (int fd), (fd))
FAULT_WRAP(FAULT_SYNC, int, sync_file_range, (int fd, off64_t off, off64_t len, unsigned flags),
	   (fd, off, len, flags))

FAULT_WRAP_AS(FAULT_SYNC, errno, int, posix_fadvise64,
	      (int fd, off64_t off, off64_t len, int advice), (fd, off, len, advice))

FAULT_WRAP_AS(FAULT_MAP, MAP_FAILED, void *, mmap64,
	      (void *at, size_t len, int prot, int flags, int fd, off64_t off),
	      (at, len, prot, flags, fd, off))
FAULT_WRAP(FAULT_MAP, int, mprotect, (void *at, size_t len, int prot), (at, len, prot))
FAULT_WRAP(FAULT_MAP, int, madvise, (void *at, size_t len, int advice), (at, len, advice))
FAULT_WRAP(FAULT_MAP, int, mincore, (void *at, size_t len, unsigned char *ret), (at, len, ret))

FAULT_WRAP(FAULT_FD, int, dup3, (int from, int to, int flags), (from, to, flags))
FAULT_WRAP(FAULT_FD, int, pipe, (int ends[2]), (ends))
FAULT_WRAP(FAULT_FD, int, pipe2, (int ends[2], int flags), (ends, flags))
FAULT_WRAP(FAULT_FD, int, memfd_create, (const char *name, unsigned flags), (name, flags))
FAULT_WRAP(FAULT_FD, int, eventfd, (unsigned value, int flags), (value, flags))
FAULT_WRAP(FAULT_FD, int, epoll_create1, (int flags), (flags))

/* To take out what is there cannot fail. */
int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	return op != EPOLL_CTL_DEL && fault_hits(FAULT_FD)
		       ? -1
		       : FAULT_REAL(epoll_ctl)(epfd, op, fd, event);
}

FAULT_WRAP(FAULT_FD, int, inotify_init1, (int flags), (flags))
FAULT_WRAP(FAULT_FD, int, inotify_add_watch, (int fd, const char *path, uint32_t mask),
	   (fd, path, mask))

/* Over one that is open there is nothing to make room for. */
int dup2(int from, int to)
{
	const bool is_open = FAULT_REAL(fcntl64)(to, F_GETFD) >= 0;

	return !is_open && fault_hits(FAULT_FD) ? -1 : FAULT_REAL(dup2)(from, to);
}

FAULT_WRAP(FAULT_FD, int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
FAULT_WRAP(FAULT_FD, int, mount,
	   (const char *what, const char *where, const char *type, unsigned long flags,
	    const void *options),
	   (what, where, type, flags, options))
FAULT_WRAP(FAULT_FD, int, mount_setattr,
	   (int dirfd, const char *path, unsigned flags, struct mount_attr *attr, size_t size),
	   (dirfd, path, flags, attr, size))
FAULT_WRAP(FAULT_FD, int, move_mount,
	   (int from, const char *old, int to, const char *new, unsigned flags),
	   (from, old, to, new, flags))
FAULT_WRAP(FAULT_FD, int, fsopen, (const char *type, unsigned flags), (type, flags))
FAULT_WRAP(FAULT_FD, int, fsconfig,
	   (int fd, unsigned what, const char *key, const void *value, int aux),
	   (fd, what, key, value, aux))
FAULT_WRAP(FAULT_FD, int, fsmount, (int fd, unsigned flags, unsigned attrs), (fd, flags, attrs))
FAULT_WRAP(FAULT_FD, int, open_tree, (int dirfd, const char *path, unsigned flags),
	   (dirfd, path, flags))

int fcntl64(int fd, int what, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, what);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fault_hits(FAULT_FD) ? -1 : FAULT_REAL(fcntl64)(fd, what, arg);
}

FAULT_WRAP(FAULT_LIST, ssize_t, getdents64, (int fd, void *p, size_t size), (fd, p, size))
FAULT_WRAP_AS(FAULT_LIST, NULL, struct dirent64 *, readdir64, (DIR * dir), (dir))
FAULT_WRAP_AS(FAULT_LIST, NULL, DIR *, fdopendir, (int fd), (fd))

int ioctl(int fd, unsigned long what, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, what);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fault_hits(FAULT_IOCTL) ? -1 : FAULT_REAL(ioctl)(fd, what, arg);
}

FAULT_WRAP_AS(FAULT_RING, -errno, int, io_uring_queue_init,
	      (unsigned n, struct io_uring *ring, unsigned flags), (n, ring, flags))
FAULT_WRAP_AS(FAULT_RING, -errno, int, io_uring_submit_and_wait,
	      (struct io_uring * ring, unsigned n), (ring, n))

FAULT_WRAP_AS(FAULT_THREAD, errno, int, pthread_create,
	      (pthread_t * ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
	      (ret, attr, fn, arg))

FAULT_WRAP(FAULT_THREAD, pid_t, fork, (void), ())

FAULT_WRAP(FAULT_SOCKET, int, setsockopt,
	   (int fd, int level, int name, const void *p, socklen_t len), (fd, level, name, p, len))
FAULT_WRAP(FAULT_SOCKET, int, socket, (int domain, int type, int protocol),
	   (domain, type, protocol))
FAULT_WRAP(FAULT_SOCKET, int, socketpair, (int domain, int type, int protocol, int ends[2]),
	   (domain, type, protocol, ends))
FAULT_WRAP(FAULT_SOCKET, int, accept4, (int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags),
	   (fd, addr, len, flags))
FAULT_WRAP(FAULT_SOCKET, int, connect, (int fd, __CONST_SOCKADDR_ARG addr, socklen_t len),
	   (fd, addr, len))
FAULT_WRAP(FAULT_SOCKET, int, bind, (int fd, __CONST_SOCKADDR_ARG addr, socklen_t len),
	   (fd, addr, len))
FAULT_WRAP(FAULT_SOCKET, int, listen, (int fd, int n), (fd, n))
FAULT_WRAP(FAULT_SOCKET, int, getsockopt, (int fd, int level, int name, void *p, socklen_t *len),
	   (fd, level, name, p, len))
FAULT_WRAP(FAULT_SOCKET, ssize_t, send, (int fd, const void *p, size_t len, int flags),
	   (fd, p, len, flags))
FAULT_WRAP(FAULT_SOCKET, ssize_t, sendto,
	   (int fd, const void *p, size_t len, int flags, __CONST_SOCKADDR_ARG addr,
	    socklen_t addr_len),
	   (fd, p, len, flags, addr, addr_len))
FAULT_WRAP(FAULT_SOCKET, ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags),
	   (fd, msg, flags))
FAULT_WRAP(FAULT_SOCKET, ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags),
	   (fd, msg, flags))

static enum fault_class class_of(long number)
{
	switch (number) {
	case SYS_openat2:
		return FAULT_OPEN;
	case 463: /* setxattrat */
	case 466: /* removexattrat */
		return FAULT_XATTR_WRITE;
	case 464: /* getxattrat */
	case 465: /* listxattrat */
		return FAULT_XATTR_READ;
	default:
		return FAULT_FD;
	}
}

long syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return fault_hits(class_of(number))
		       ? -1
		       : FAULT_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
