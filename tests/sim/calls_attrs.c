// SPDX-License-Identifier: Apache-2.0
/* Attributes of files and of file systems. */
#include "calls.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

int __real_fstat(int fd, struct stat *st);

int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
	const uint32_t ino = fds_is_ours(fd) ? fds_ino(fd) : 0;

	if (!fds_is_ours(fd))
		return __real_fstat(fd, st);
	if (!ino)
		return -1;
	fate_call(FATE_NOTHING, "fstat");
	fs_stat(sim->disk, ino, st);
	return 0;
}
CALLS_ALSO(fstat, fstat64);

int __wrap_fstatat(int dirfd, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	uint32_t ino;

	(void)flags;
	if (!fds_is_path_ours(dirfd, path)) {
		errno = ENOENT;
		return -1;
	}
	fate_call(FATE_NOTHING, "fstatat");
	ino = calls_object(dirfd, path);
	if (!ino)
		return -1;
	fs_stat(sim->disk, ino, st);
	return 0;
}
CALLS_ALSO(fstatat, fstatat64);

int __wrap_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st)
{
	return __wrap_fstatat(AT_FDCWD, path, st, 0);
}
CALLS_ALSO(stat, stat64);
extern __typeof__(__wrap_stat) __wrap_lstat __attribute__((alias("__wrap_stat")));
extern __typeof__(__wrap_stat) __wrap_lstat64 __attribute__((alias("__wrap_stat")));

static struct statx_timestamp stamp(struct timespec t)
{
	return (struct statx_timestamp){ .tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec };
}

int __wrap_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *ret);
int __wrap_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *ret)
{
	struct stat st;
	int64_t btime;

	if (__wrap_fstatat(dirfd, path, &st, flags) < 0)
		return -1;
	btime = disk_inode(sim->disk, (uint32_t)st.st_ino)->btime;
	*ret = (struct statx){
		.stx_mask = STATX_BASIC_STATS | STATX_BTIME | (mask & STATX_MNT_ID),
		.stx_blksize = DISK_BLK_BYTES,
		.stx_nlink = (uint32_t)st.st_nlink,
		.stx_uid = st.st_uid,
		.stx_gid = st.st_gid,
		.stx_mode = (uint16_t)st.st_mode,
		.stx_ino = st.st_ino,
		.stx_size = (uint64_t)st.st_size,
		.stx_blocks = (uint64_t)st.st_blocks,
		.stx_atime = stamp(st.st_atim),
		.stx_btime = { .tv_sec = btime / 1000000000,
			       .tv_nsec = (uint32_t)(btime % 1000000000) },
		.stx_ctime = stamp(st.st_ctim),
		.stx_mtime = stamp(st.st_mtim),
		.stx_rdev_major = major(st.st_rdev),
		.stx_rdev_minor = minor(st.st_rdev),
		.stx_dev_major = major(st.st_dev),
		.stx_dev_minor = minor(st.st_dev),
		.stx_mnt_id = 1,
	};
	return 0;
}

static const struct statfs file_system = {
	.f_bsize = DISK_BLK_BYTES,
	.f_frsize = DISK_BLK_BYTES,
	.f_blocks = 1 << 20,
	.f_bfree = 1 << 19,
	.f_bavail = 1 << 19,
	.f_files = 1 << 20,
	.f_ffree = 1 << 19,
	.f_namelen = 255,
};

int __wrap_fstatfs(int fd, struct statfs *ret);
int __wrap_fstatfs(int fd, struct statfs *ret)
{
	if (!fds_ino(fd))
		return -1;
	*ret = file_system;
	/* The other type is one that nothing is known of. */
	ret->f_type = sim->has_true_extents ? EXT4_SUPER_MAGIC : REISERFS_SUPER_MAGIC;
	return 0;
}
CALLS_ALSO(fstatfs, fstatfs64);

/* The one path that is asked for is the kernel's number of the boot. */
int __wrap_statfs(const char *path, struct statfs *ret);
int __wrap_statfs(const char *path, struct statfs *ret)
{
	(void)path;
	*ret = file_system;
	ret->f_type = PROC_SUPER_MAGIC;
	return 0;
}
CALLS_ALSO(statfs, statfs64);

int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
	if (!fds_ino(fd))
		return -1;
	*ret = (struct statvfs){
		.f_bsize = DISK_BLK_BYTES,
		.f_frsize = DISK_BLK_BYTES,
		.f_blocks = file_system.f_blocks,
		.f_bfree = file_system.f_bfree,
		.f_bavail = file_system.f_bavail,
		.f_files = file_system.f_files,
		.f_ffree = file_system.f_ffree,
		.f_favail = file_system.f_ffree,
		.f_namemax = 255,
	};
	return 0;
}
CALLS_ALSO(fstatvfs, fstatvfs64);

int __wrap_faccessat(int dirfd, const char *path, int mode, int flags);
int __wrap_faccessat(int dirfd, const char *path, int mode, int flags)
{
	struct stat st;

	(void)mode;
	return __wrap_fstatat(dirfd, path, &st, flags);
}

int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
	return __wrap_faccessat(AT_FDCWD, path, mode, 0);
}

static int set_mode(uint32_t ino, mode_t mode)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_ATTR, "chmod");
	return (int)calls_result(fs_set_mode(sim->disk, ino, mode));
}

int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	const struct sim_fd *f = fds_get(fd);

	if (f && f->flags & O_PATH) {
		errno = EBADF;
		return -1;
	}
	return set_mode(f ? f->ino : 0, mode);
}

int __wrap_chmod(const char *path, mode_t mode);
int __wrap_chmod(const char *path, mode_t mode)
{
	return set_mode(calls_object(AT_FDCWD, path), mode);
}

int __wrap_fchmodat(int dirfd, const char *path, mode_t mode, int flags);
int __wrap_fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
	(void)flags;
	return set_mode(calls_object(dirfd, path), mode);
}

static int set_owner(uint32_t ino, uid_t uid, gid_t gid)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_ATTR, "chown");
	return (int)calls_result(fs_set_owner(sim->disk, ino, uid, gid));
}

int __wrap_fchown(int fd, uid_t uid, gid_t gid);
int __wrap_fchown(int fd, uid_t uid, gid_t gid)
{
	return set_owner(fds_ino(fd), uid, gid);
}

int __wrap_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags);
int __wrap_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
	(void)flags;
	return set_owner(calls_object(dirfd, path), uid, gid);
}

static int set_times(uint32_t ino, const struct timespec times[2])
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_ATTR, "utimensat");
	return (int)calls_result(fs_set_times(sim->disk, ino, times));
}

int __wrap_futimens(int fd, const struct timespec times[2]);
int __wrap_futimens(int fd, const struct timespec times[2])
{
	return set_times(fds_ino(fd), times);
}

int __wrap_utimensat(int dirfd, const char *path, const struct timespec times[2], int flags);
int __wrap_utimensat(int dirfd, const char *path, const struct timespec times[2], int flags)
{
	(void)flags;
	return set_times(path ? calls_object(dirfd, path) : fds_ino(dirfd), times);
}

/* Of a descriptor. One of O_PATH is refused, and 0. */
static uint32_t of_fd(int fd)
{
	const struct sim_fd *f = fds_get(fd);

	if (f && f->flags & O_PATH) {
		errno = EBADF;
		return 0;
	}
	return f ? f->ino : 0;
}

static ssize_t get_xattr(uint32_t ino, const char *name, void *p, size_t size)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_READ, "getxattr");
	return calls_result(fs_get_xattr(sim->disk, ino, name, p, size));
}

ssize_t __wrap_fgetxattr(int fd, const char *name, void *p, size_t size);
ssize_t __wrap_fgetxattr(int fd, const char *name, void *p, size_t size)
{
	return get_xattr(of_fd(fd), name, p, size);
}

ssize_t __wrap_getxattr(const char *path, const char *name, void *p, size_t size);
ssize_t __wrap_getxattr(const char *path, const char *name, void *p, size_t size)
{
	return get_xattr(calls_object(AT_FDCWD, path), name, p, size);
}
extern __typeof__(__wrap_getxattr) __wrap_lgetxattr __attribute__((alias("__wrap_getxattr")));

static ssize_t list_xattrs(uint32_t ino, char *p, size_t size)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_READ, "listxattr");
	return calls_result(fs_list_xattrs(sim->disk, ino, p, size));
}

ssize_t __wrap_flistxattr(int fd, char *p, size_t size);
ssize_t __wrap_flistxattr(int fd, char *p, size_t size)
{
	return list_xattrs(of_fd(fd), p, size);
}

ssize_t __wrap_listxattr(const char *path, char *p, size_t size);
ssize_t __wrap_listxattr(const char *path, char *p, size_t size)
{
	return list_xattrs(calls_object(AT_FDCWD, path), p, size);
}
extern __typeof__(__wrap_listxattr) __wrap_llistxattr __attribute__((alias("__wrap_listxattr")));

static int set_xattr(uint32_t ino, const struct fs_xattr *x)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_XATTR, "setxattr");
	sim_trace(2, "   setxattr ino %u %s (%zu bytes)", ino, x->name, x->size);
	return (int)calls_result(fs_set_xattr(sim->disk, ino, x));
}

int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	/* Asked of a memory file, to learn what this process may. */
	if (!fds_is_ours(fd))
		return 0;
	return set_xattr(of_fd(fd), &(struct fs_xattr){ name, value, size, flags });
}

int __wrap_setxattr(const char *path, const char *name, const void *value, size_t size, int flags);
int __wrap_setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	return set_xattr(calls_object(AT_FDCWD, path),
			 &(struct fs_xattr){ name, value, size, flags });
}
extern __typeof__(__wrap_setxattr) __wrap_lsetxattr __attribute__((alias("__wrap_setxattr")));

static int remove_xattr(uint32_t ino, const char *name)
{
	if (!ino)
		return -1;
	CALLS_FATE(FATE_XATTR, "removexattr");
	sim_trace(2, "   removexattr ino %u %s", ino, name);
	return (int)calls_result(fs_remove_xattr(sim->disk, ino, name));
}

int __wrap_fremovexattr(int fd, const char *name);
int __wrap_fremovexattr(int fd, const char *name)
{
	return remove_xattr(of_fd(fd), name);
}

int __wrap_removexattr(const char *path, const char *name);
int __wrap_removexattr(const char *path, const char *name)
{
	return remove_xattr(calls_object(AT_FDCWD, path), name);
}
extern __typeof__(__wrap_removexattr) __wrap_lremovexattr
	__attribute__((alias("__wrap_removexattr")));
