// SPDX-License-Identifier: Apache-2.0
/* Memory, time, chance, and what else the program asks of the machine. */
#include "calls.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define FLAG_EXTENTS 0x00080000 /* FS_EXTENT_FL */

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t len);
int __real_madvise(void *at, size_t len, int advice);
int __real_mincore(void *at, size_t len, unsigned char *ret);
int __wrap_openat(int dirfd, const char *path, int flags, ...);

/* A mapping of a made-up file is its pages themselves. */
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	struct disk_inode *i;
	uint32_t ino;

	if (flags & MAP_ANONYMOUS || !fds_is_ours(fd))
		return __real_mmap(at, len, prot, flags, fd, off);
	ino = fds_ino(fd);
	if (!ino)
		return MAP_FAILED;
	if (off < 0 || (uint64_t)off + len > DISK_FILE_BYTES)
		sim_give_up("a mapping of %zu bytes at %lld", len, (long long)off);
	i = disk_inode(sim->disk, ino);
	if (prot & PROT_WRITE)
		i->is_mapped = i->is_torn = true;
	disk_use(sim->disk, ino, off + (int64_t)len);
	if (flags & MAP_FIXED)
		return __real_mmap(at, len, prot, flags, disk_pages_fd(),
				   (off_t)ino * DISK_FILE_BYTES + off);
	return disk_pages(sim->disk, ino) + off;
}
CALLS_ALSO(mmap, mmap64);

int __wrap_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len)
{
	if (calls_are_early())
		return __real_munmap(at, len);
	return disk_is_page(sim->disk, at) ? 0 : __real_munmap(at, len);
}

int __wrap_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice)
{
	if (calls_are_early())
		return __real_madvise(at, len, advice);
	return disk_is_page(sim->disk, at) ? 0 : __real_madvise(at, len, advice);
}

int __wrap_mincore(void *at, size_t len, unsigned char *ret);
int __wrap_mincore(void *at, size_t len, unsigned char *ret)
{
	if (!disk_is_page(sim->disk, at))
		return __real_mincore(at, len, ret);
	memset(ret, 1, (len + 4095) / 4096);
	return 0;
}

struct extents {
	struct fiemap *map;
	uint32_t max;
	bool is_full;
};

static void add_extent(struct extents *e, size_t blk, bool is_unwritten)
{
	const uint64_t off = (uint64_t)blk * DISK_BLK_BYTES;
	const uint32_t flags = is_unwritten ? FIEMAP_EXTENT_UNWRITTEN : 0;
	struct fiemap_extent *last = e->map->fm_mapped_extents
					     ? &e->map->fm_extents[e->map->fm_mapped_extents - 1]
					     : NULL;

	if (last && last->fe_logical + last->fe_length == off && last->fe_flags == flags) {
		last->fe_length += DISK_BLK_BYTES;
		return;
	}
	e->is_full = e->map->fm_mapped_extents == e->max;
	if (!e->is_full)
		e->map->fm_extents[e->map->fm_mapped_extents++] = (struct fiemap_extent){
			.fe_logical = off, .fe_length = DISK_BLK_BYTES, .fe_flags = flags
		};
}

static int list_extents(uint32_t ino, struct fiemap *map)
{
	struct extents e = { .map = map, .max = map->fm_extent_count };
	const struct disk_inode *i = disk_inode(sim->disk, ino);
	const size_t end =
		(size_t)((map->fm_start + map->fm_length + DISK_BLK_BYTES - 1) / DISK_BLK_BYTES);

	if (map->fm_flags & FIEMAP_FLAG_SYNC)
		disk_write_back_all(sim->disk, ino);
	map->fm_mapped_extents = 0;
	for (size_t blk = (size_t)map->fm_start / DISK_BLK_BYTES;
	     blk < DISK_BLKS && blk < end && !e.is_full; blk++)
		if (i->dirty[blk] || disk_state(i->now, blk) != DISK_HOLE)
			add_extent(&e, blk,
				   disk_state(i->now, blk) == DISK_UNWRITTEN &&
					   fate_planted != FATE_PLANT_UNWRITTEN);
	if (map->fm_mapped_extents && !e.is_full)
		map->fm_extents[map->fm_mapped_extents - 1].fe_flags |= FIEMAP_EXTENT_LAST;
	return 0;
}

int __wrap_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, ...)
{
	const uint32_t ino = fds_ino(fd);
	va_list ap;
	void *arg;

	va_start(ap, what);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!ino)
		return -1;
	if (what == FS_IOC_FIEMAP) {
		CALLS_FATE(FATE_READ, "FIEMAP");
		return list_extents(ino, arg);
	}
	if (what == FS_IOC_GETFLAGS) {
		*(int *)arg = FLAG_EXTENTS;
		return 0;
	}
	errno = ENOTTY;
	return -1;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int k = 0; k < 6; k++)
		a[k] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_openat2) {
		const struct open_how *how = (const struct open_how *)a[2];

		return __wrap_openat((int)a[0], (const char *)a[1], (int)how->flags,
				     (mode_t)how->mode);
	}
	if (number == SYS_capget) {
		struct __user_cap_data_struct *data = (struct __user_cap_data_struct *)a[1];

		data[0].effective = data[1].effective = UINT32_MAX;
		return 0;
	}
	if (number == SYS_gettid)
		return 4242;
	errno = ENOSYS;
	return -1;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	const int64_t now = disk_now(sim->disk);

	(void)clock;
	*ret = (struct timespec){ .tv_sec = now / 1000000000, .tv_nsec = now % 1000000000 };
	return 0;
}

int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	disk_pass_time(sim->disk, (int64_t)us * 1000);
	return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *t, struct timespec *rest)
{
	(void)rest;
	disk_pass_time(sim->disk, (int64_t)t->tv_sec * 1000000000 + t->tv_nsec);
	return 0;
}

ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags)
{
	struct dice dice = dice_stream(sim->seed, SIM_STREAM_NOISE, ++sim->noise);

	(void)flags;
	for (size_t k = 0; k < len; k++)
		((uint8_t *)p)[k] = (uint8_t)dice_next(&dice);
	return (ssize_t)len;
}

/* What ext4 says of its options. */
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char options[] = "data=ordered\nbarrier\n";

	(void)mode;
	if (!strncmp(path, "/proc/fs/ext4/", 14))
		return fmemopen(options, sizeof(options) - 1, "r");
	errno = ENOENT;
	return NULL;
}
extern __typeof__(__wrap_fopen) __wrap_fopen64 __attribute__((alias("__wrap_fopen")));

ssize_t __wrap_readlink(const char *path, char *p, size_t size);
ssize_t __wrap_readlink(const char *path, char *p, size_t size)
{
	if (!strncmp(path, "/sys/dev/block/", 15))
		return snprintf(p, size, "../sim");
	errno = ENOENT;
	return -1;
}

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
	return 0;
}

gid_t __wrap_getegid(void);
gid_t __wrap_getegid(void)
{
	return 0;
}

pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
	return 4242;
}

/* There is one thread. */
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	(void)ret, (void)attr, (void)fn, (void)arg;
	sim_give_up("a thread is started");
}

int __wrap_getrlimit(int what, struct rlimit *ret);
int __wrap_getrlimit(int what, struct rlimit *ret)
{
	(void)what;
	*ret = (struct rlimit){ .rlim_cur = SIM_FD_FIRST + SIM_FDS,
				.rlim_max = SIM_FD_FIRST + SIM_FDS };
	return 0;
}
CALLS_ALSO(getrlimit, getrlimit64);

int __wrap_uname(struct utsname *ret);
int __wrap_uname(struct utsname *ret)
{
	*ret = (struct utsname){ .sysname = "Linux", .release = "6.18.0" };
	return 0;
}

static int missing(void)
{
	errno = ENOSYS;
	return -1;
}

int __wrap_name_to_handle_at(int fd, const char *name, void *handle, int *mount, int flags);
int __wrap_name_to_handle_at(int fd, const char *name, void *handle, int *mount, int flags)
{
	(void)fd, (void)name, (void)handle, (void)mount, (void)flags;
	errno = EOPNOTSUPP;
	return -1;
}

int __wrap_open_tree(int dirfd, const char *path, unsigned flags);
int __wrap_open_tree(int dirfd, const char *path, unsigned flags)
{
	(void)dirfd, (void)path, (void)flags;
	return missing();
}

int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
	(void)flags;
	return missing();
}

struct io_uring;
int __wrap_io_uring_queue_init(unsigned n, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned n, struct io_uring *ring, unsigned flags)
{
	(void)n, (void)ring, (void)flags;
	return -ENOSYS;
}
