// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/file.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/minmax.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <ucontext.h>

enum {
	PAUSE_MAX_MS = 16,
	CLONE_ALIGN = 4096,
	EXTENTS_PER_CALL = 64,
};

ssize_t file_pread(int fd, void *p, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)p + done, len - done, off + (off_t)done);

		if (n == 0)
			break;
		if (n > 0)
			done += (size_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	return (ssize_t)done;
}

ssize_t file_read_text(const char *path, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	text[n < 0 ? 0 : n] = '\0';
	return n < 0 ? -errno : n;
}

int file_pwrite(int fd, const void *p, size_t len, off_t off)
{
	while (len) {
		ssize_t n = pwrite(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p = (const char *)p + n;
		len -= (size_t)n;
		off += n;
	}
	return 0;
}

int file_pwritev(int fd, struct iovec *iov, int niov, off_t off)
{
	for (;;) {
		while (niov > 0 && !iov->iov_len) {
			iov++;
			niov--;
		}
		if (niov <= 0)
			return 0;

		ssize_t n = pwritev(fd, iov, MIN(niov, IOV_MAX), off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		off += n;
		while (niov > 0 && (size_t)n >= iov->iov_len) {
			n -= (ssize_t)iov->iov_len;
			iov++;
			niov--;
		}
		if (niov > 0) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
}

int file_write_out(int fd)
{
	const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			       SYNC_FILE_RANGE_WAIT_AFTER;

	return sync_file_range(fd, 0, 0, flags) < 0 ? -errno : 0;
}

int file_clone_range(int from, int to, off_t off, size_t len)
{
	struct file_clone_range range = {
		.src_fd = from,
		.src_offset = (uint64_t)off,
		.src_length = len,
		.dest_offset = (uint64_t)off,
	};

	if (off % CLONE_ALIGN)
		return -EINVAL;
	if (len % CLONE_ALIGN) {
		struct stat st;

		if (fstat(from, &st) < 0 || st.st_size != off + (off_t)len)
			return -EINVAL;
	}
	if (!ioctl(to, FICLONERANGE, &range))
		return 0;
	return errno == ENOTTY ? -EOPNOTSUPP : -errno;
}

static int next_extents(int fd, uint64_t start, uint64_t size, uint32_t flags, struct fiemap *map)
{
	memset(map, 0, sizeof(*map));
	map->fm_start = start;
	map->fm_length = size - start;
	map->fm_flags = flags;
	map->fm_extent_count = EXTENTS_PER_CALL;
	while (ioctl(fd, FS_IOC_FIEMAP, map) < 0) {
		if (errno == ENOTTY || errno == EBADR)
			return -EOPNOTSUPP;
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int each_extent(int fd, uint64_t start, uint64_t size, uint32_t flags, file_extent_fn *fn,
		       void *arg)
{
	_Alignas(struct fiemap) char
		bytes[sizeof(struct fiemap) + EXTENTS_PER_CALL * sizeof(struct fiemap_extent)];
	struct fiemap *map = (struct fiemap *)bytes;

	while (start < size) {
		uint64_t before = start;
		int r = next_extents(fd, start, size, flags, map);

		if (r < 0)
			return r;
		if (!map->fm_mapped_extents)
			return 0;
		for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
			const struct fiemap_extent *e = &map->fm_extents[i];
			uint64_t off = MAX(e->fe_logical, start);
			uint64_t end = e->fe_logical + e->fe_length;

			if (off >= size)
				return 0;
			if (end > size)
				end = size;
			if (end > off) {
				r = fn(arg, off, end - off, e->fe_flags & FIEMAP_EXTENT_UNWRITTEN);
				if (r)
					return r;
				start = end;
			}
			if (e->fe_flags & FIEMAP_EXTENT_LAST)
				return 0;
		}
		if (start == before)
			return -EIO;
	}
	return 0;
}

int file_extents(int fd, uint64_t size, file_extent_fn *fn, void *arg)
{
	return each_extent(fd, 0, size, FIEMAP_FLAG_SYNC, fn, arg);
}

static int add_extent(void *arg, uint64_t off, uint64_t len, bool is_unwritten)
{
	(void)off, (void)is_unwritten;
	*(uint64_t *)arg += len;
	return 0;
}

int file_leaves_room(int fd, unsigned part, uint64_t bytes)
{
	struct statvfs st;
	uint64_t spare;

	if (fstatvfs(fd, &st) < 0)
		return -errno;
	spare = st.f_blocks / part;
	return st.f_bavail < spare || (st.f_bavail - spare) * st.f_frsize < bytes ? -ENOSPC : 0;
}

int file_allocated(int fd, uint64_t off, uint64_t len, uint64_t *ret)
{
	*ret = 0;
	return each_extent(fd, off, off + len, 0, add_extent, ret);
}

static _Thread_local sigjmp_buf guard_env;
static _Thread_local volatile sig_atomic_t is_guarded;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static int guard_error;
static struct sigaction guard_old;

/* Do the action that this process had before. A default action is restored and meets the same fault
 * again on return, so that a core dump shows the real place. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (guard_old.sa_flags & SA_SIGINFO) {
		guard_old.sa_sigaction(sig, info, context);
	} else if (guard_old.sa_handler == SIG_DFL ||
		   (guard_old.sa_handler == SIG_IGN && info->si_code > 0)) {
		signal(sig, SIG_DFL);
		if (info->si_code <= 0)
			raise(sig);
	} else if (guard_old.sa_handler != SIG_IGN) {
		guard_old.sa_handler(sig);
	}
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	/* Not caused by this store: a memory error in another process (BUS_MCEERR_AO), or a
	 * kill(2). */
	bool is_own_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
	int saved = errno;

	if (is_guarded && is_own_fault) {
		is_guarded = 0;
		/* Restore the mask here: sigsetjmp would spend a system call on every store. */
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		siglongjmp(guard_env, 1);
	}
	pass_on(sig, info, context);
	errno = saved;
}

static void guard_install(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, NULL, &guard_old) < 0 || sigaction(SIGBUS, &sa, NULL) < 0)
		guard_error = -errno;
}

int file_guard_init(void)
{
	pthread_once(&guard_once, guard_install);
	return guard_error;
}

static int guarded_copy(void *dst, const void *src, size_t len)
{
	int r = file_guard_init();

	if (r < 0)
		return r;
	if (sigsetjmp(guard_env, 0))
		return -EIO;
	is_guarded = 1;
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(dst, src, len);
	atomic_signal_fence(memory_order_seq_cst);
	is_guarded = 0;
	return 0;
}

int file_map_store(void *dst, const void *src, size_t len)
{
	return guarded_copy(dst, src, len);
}

int file_map_store_last(void *dst, const void *src)
{
	int r = file_guard_init();
	uint64_t word;

	if (r < 0)
		return r;
	memcpy(&word, src, sizeof(word));
	if (sigsetjmp(guard_env, 0))
		return -EIO;
	is_guarded = 1;
	atomic_signal_fence(memory_order_seq_cst);
	__atomic_store_n((uint64_t *)dst, word, __ATOMIC_RELEASE);
	atomic_signal_fence(memory_order_seq_cst);
	is_guarded = 0;
	return 0;
}

/* Poll, as flock has no time limit. A holder that is stopped, or that is another user's program,
 * may never let go. */
int file_flock_within(int fd, int wait_ms)
{
	const int64_t end = clock_ms() + wait_ms;

	for (unsigned pause_ms = 1;;
	     pause_ms = pause_ms < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS) {
		int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

		if (r != -EWOULDBLOCK && r != -EINTR)
			return r;
		if (clock_ms() >= end)
			return -EAGAIN;
		usleep(pause_ms * 1000);
	}
}

pid_t file_flock_holder(int fd)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned dev_major, dev_minor;
	unsigned long long ino;
	pid_t found = 0;
	char line[256];
	struct stat st;
	int pid;

	if (f && fstat(fd, &st) == 0)
		while (!found && fgets(line, sizeof(line), f))
			if (sscanf(line, "%*u: FLOCK %*s WRITE %d %x:%x:%llu", &pid, &dev_major,
				   &dev_minor, &ino) == 4 &&
			    pid > 0 && makedev(dev_major, dev_minor) == st.st_dev &&
			    ino == st.st_ino)
				found = pid;
	if (f)
		fclose(f);
	return found;
}
