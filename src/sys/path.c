// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/path.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { OPENAT2_UNKNOWN, OPENAT2_USABLE, OPENAT2_MISSING };

static _Atomic int openat2_state = OPENAT2_UNKNOWN;

static int openat2_how(int dirfd, const char *path, int flags, mode_t mode, unsigned resolve)
{
	struct open_how how = { .flags = (unsigned)flags, .mode = mode, .resolve = resolve };

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

static int sys_openat2(int dirfd, const char *path, int flags, mode_t mode, unsigned resolve)
{
	return openat2_how(dirfd, path, flags, mode,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | resolve);
}

/* An EPERM may come from the file itself (O_NOATIME on another user's file, an immutable file). So
 * probe with an open that only a filter can refuse. */
static bool openat2_is_usable(int rootfd)
{
	int state = atomic_load_explicit(&openat2_state, memory_order_relaxed);

	if (state == OPENAT2_UNKNOWN) {
		_cleanup_(closep) int fd = sys_openat2(rootfd, ".", O_PATH | O_CLOEXEC, 0, 0);

		if (fd >= 0)
			state = OPENAT2_USABLE;
		else if (errno == ENOSYS || errno == EPERM)
			state = OPENAT2_MISSING;
		else
			return true;
		atomic_store_explicit(&openat2_state, state, memory_order_relaxed);
	}
	return state == OPENAT2_USABLE;
}

static bool has_dotdot(const char *path)
{
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && p[0] == '.' && p[1] == '.')
			return true;
		p += len;
		p += strspn(p, "/");
	}
	return false;
}

static bool is_symlink(int dirfd, const char *name)
{
	struct stat st;

	return !fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode);
}

/* The last component of a walk. For a trailing symlink openat differs from openat2: it returns
 * other errors, and it opens the link where openat2 would follow it. */
static int walk_last(int dirfd, const char *name, int flags, mode_t mode)
{
	_cleanup_(closep) int fd = openat(dirfd, name, flags | O_NOFOLLOW, mode);
	struct stat st;

	if (fd < 0) {
		int r = -errno;

		if (r == -ENOTDIR && !(flags & O_NOFOLLOW) && is_symlink(dirfd, name))
			return -ELOOP;
		return r;
	}
	if ((flags & O_PATH) && !(flags & O_NOFOLLOW)) {
		if (fstat(fd, &st) < 0)
			return -errno;
		if (S_ISLNK(st.st_mode))
			return -ELOOP;
	}
	return steal_fd(&fd);
}

/* Each step is one name below a pinned directory, so nobody can replace a directory above it. */
static int walk_open(int rootfd, const char *path, int flags, mode_t mode)
{
	_cleanup_(closep) int own = -1;
	char name[NAME_MAX + 1];
	const char *p = path;
	int dirfd = rootfd;

	if (*p == '/')
		return -EXDEV;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	for (;;) {
		size_t len = strcspn(p, "/");
		const char *next = p + len + strspn(p + len, "/");

		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, p, len);
		name[len] = '\0';
		if (!*next) {
			if (p[len] == '/' && (flags & O_CREAT))
				return -EISDIR;
			return walk_last(dirfd, name, p[len] == '/' ? flags | O_DIRECTORY : flags,
					 mode);
		}

		int fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0) {
			int r = -errno;

			return r == -ENOTDIR && is_symlink(dirfd, name) ? -ELOOP : r;
		}
		closep(&own);
		own = dirfd = fd;
		p = next;
	}
}

int path_open(int rootfd, const char *path, int flags, mode_t mode)
{
	if (!*path)
		path = ".";
	/* RESOLVE_BENEATH would allow a ".." that stays below the root. */
	if (has_dotdot(path))
		return -EXDEV;
	/* openat ignores flags that openat2 refuses with EINVAL. */
	if (flags & O_PATH)
		flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW;
	flags |= O_CLOEXEC;
	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
		mode &= 07777;
	else
		mode = 0;

	while (atomic_load_explicit(&openat2_state, memory_order_relaxed) != OPENAT2_MISSING) {
		int fd = sys_openat2(rootfd, path, flags, mode, 0);

		if (fd >= 0)
			return fd;

		int r = -errno;

		if (r == -EINTR || r == -EAGAIN)
			continue;
		if ((r != -ENOSYS && r != -EPERM) || openat2_is_usable(rootfd))
			return r;
	}
	return walk_open(rootfd, path, flags, mode);
}

int path_open_quiet(int rootfd, const char *path, int flags)
{
	int fd = path_open(rootfd, path, flags | O_NOATIME, 0);

	return fd == -EPERM ? path_open(rootfd, path, flags, 0) : fd;
}

int path_open_unmounted(int rootfd, const char *path, int flags)
{
	int fd;

	if (has_dotdot(path))
		return -EXDEV;
	do {
		if (!openat2_is_usable(rootfd))
			return -ENOSYS;
		fd = sys_openat2(rootfd, *path ? path : ".", flags | O_CLOEXEC, 0, RESOLVE_NO_XDEV);
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : fd;
}

int path_open_above(int fd)
{
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	int above = openat2_is_usable(fd) ? openat2_how(fd, "..", flags, 0, RESOLVE_NO_XDEV)
					  : openat(fd, "..", flags);

	return above < 0 ? -errno : above;
}

int path_reopen(int fd, int flags)
{
	char link[sizeof("/proc/self/fd/-2147483648")];
	int r;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	do {
		r = open(link, (flags & ~(O_NOFOLLOW | O_CREAT | O_EXCL)) | O_CLOEXEC);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int path_clone_readonly(int fd)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	_cleanup_(closep) int clone =
		open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (clone < 0 || mount_setattr(clone, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return steal_fd(&clone);
}

bool path_is_plain(const char *path, size_t len)
{
	size_t start = 0;

	if (!len || len >= PATH_MAX || memchr(path, '\0', len))
		return false;
	for (size_t i = 0; i <= len; i++) {
		if (i < len && path[i] != '/')
			continue;

		size_t n = i - start;

		if (!n || n > NAME_MAX)
			return false;
		if (path[start] == '.' && (n == 1 || (n == 2 && path[start + 1] == '.')))
			return false;
		start = i + 1;
	}
	return true;
}
