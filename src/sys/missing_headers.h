/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that a libc other than glibc lacks: Meson looks for each, defines LACKS_* for
 * missing ones, and includes this before every source. With glibc it is not included. */
#pragma once

#include "veneer/base/lock.h"

#include <dirent.h>
#include <linux/mount.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Elsewhere these types have one width, and there are no names with 64. */
#undef dirent64
#undef getdents64
#define dirent64		  dirent
#define getdents64(fd, buf, size) getdents(fd, (struct dirent *)(void *)(buf), size)

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

#ifdef LACKS_CLOSE_RANGE
static inline int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}
#endif

#ifdef LACKS_RENAMEAT2
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE	 2
#define RENAME_WHITEOUT	 4

static inline int renameat2(int from_fd, const char *from, int to_fd, const char *to,
			    unsigned flags)
{
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}
#endif

#ifdef LACKS_STATX
#include <linux/stat.h>

static inline int statx(int fd, const char *path, int flags, unsigned mask, struct statx *ret)
{
	return (int)syscall(SYS_statx, fd, path, flags, mask, ret);
}
#endif

#ifdef LACKS_OPEN_TREE
static inline int open_tree(int fd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, fd, path, flags);
}

static inline int move_mount(int from_fd, const char *from, int to_fd, const char *to,
			     unsigned flags)
{
	return (int)syscall(SYS_move_mount, from_fd, from, to_fd, to, flags);
}

static inline int mount_setattr(int fd, const char *path, unsigned flags, struct mount_attr *attr,
				size_t size)
{
	return (int)syscall(SYS_mount_setattr, fd, path, flags, attr, size);
}
#endif

#ifdef LACKS_PREADV2
#define RWF_NOWAIT 8

/* The kernel takes the offset in two halves; a 64-bit machine ignores the second. */
static inline ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return syscall(SYS_preadv2, fd, iov, n, (long)off, (long)((unsigned long long)off >> 32),
		       flags);
}
#endif

#ifdef LACKS_PTHREAD_COND_CLOCKWAIT
/* Waits by the wall clock, which can be set: a waiter reads its own clock when it wakes. */
static inline int pthread_cond_clockwait(pthread_cond_t *cond, mutex_t *lock, clockid_t clock,
					 const struct timespec *at)
{
	struct timespec now, day;

	clock_gettime(clock, &now);
	clock_gettime(CLOCK_REALTIME, &day);
	day.tv_sec += at->tv_sec - now.tv_sec;
	day.tv_nsec += at->tv_nsec - now.tv_nsec;
	if (day.tv_nsec < 0) {
		day.tv_nsec += 1000000000;
		day.tv_sec--;
	} else if (day.tv_nsec >= 1000000000) {
		day.tv_nsec -= 1000000000;
		day.tv_sec++;
	}
	return pthread_cond_timedwait(cond, lock, &day);
}
#endif

#ifdef LACKS_PTHREAD_RWLOCKATTR_SETKIND_NP
#define PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP 2

/* There is one kind: a writer waits for all earlier readers. */
static inline int pthread_rwlockattr_setkind_np(pthread_rwlockattr_t *attr, int kind)
{
	(void)attr;
	(void)kind;
	return 0;
}
#endif

#ifdef LACKS_MALLOC_TRIM
#define M_TRIM_THRESHOLD (-1)
#define M_MMAP_THRESHOLD (-3)

/* Other allocators return free memory by themselves. */
static inline int malloc_trim(size_t pad)
{
	(void)pad;
	return 0;
}

static inline int mallopt(int what, int value)
{
	(void)what;
	(void)value;
	return 1;
}
#endif
