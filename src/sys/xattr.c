// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/xattr.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

/* The same numbers on x86-64 and arm64; the C library's headers lack them. */
enum {
	NR_SETXATTRAT = 463,
	NR_GETXATTRAT = 464,
	NR_LISTXATTRAT = 465,
	NR_REMOVEXATTRAT = 466,
};

enum {
	FIRST_GUESS = 256,
	/* the kernel's limit of a value and of a list */
	LARGEST = 65536,
};

struct at_args {
	uint64_t value;
	uint32_t size;
	uint32_t flags;
};

static pthread_once_t probe_once = PTHREAD_ONCE_INIT;
static bool has_at;

/* Calls that touch no file and must fail with EINVAL if they exist. So ENOSYS, or the EPERM of a
 * system call filter, is never mistaken for the answer of a file system. */
static void probe_at(void)
{
	static const int at_flags = -1;

	has_at = syscall(NR_GETXATTRAT, -1, "", 0, "", NULL, 0) < 0 && errno == EINVAL &&
		 syscall(NR_SETXATTRAT, -1, "", 0, "", NULL, 0) < 0 && errno == EINVAL &&
		 syscall(NR_LISTXATTRAT, -1, "", at_flags, NULL, 0) < 0 && errno == EINVAL &&
		 syscall(NR_REMOVEXATTRAT, -1, "", at_flags, "") < 0 && errno == EINVAL;
}

static bool use_at(void)
{
	int saved = errno;

	pthread_once(&probe_once, probe_at);
	errno = saved;
	return has_at;
}

static void fd_path(int fd, char *path, size_t size)
{
	snprintf(path, size, "/proc/self/fd/%d", fd);
}

/* A path for the l-calls, below the descriptor: its magic link is not the last component, so it is
 * followed. This takes one system call instead of three, with open and close. */
static int name_path(int dirfd, const char *name, char *path, size_t size)
{
	int n;

	if (dirfd == AT_FDCWD || *name == '/')
		n = snprintf(path, size, "%s", name);
	else
		n = snprintf(path, size, "/proc/self/fd/%d/%s", dirfd, name);
	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

static const char *resolve_empty(int dirfd, const char *name)
{
	return !*name && dirfd == AT_FDCWD ? "." : name;
}

ssize_t xattr_get(int dirfd, const char *name, const char *attr, void *value, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;

	name = resolve_empty(dirfd, name);
	if (!*name) {
		n = fgetxattr(dirfd, attr, value, size);
		if (n < 0 && errno == EBADF) {
			fd_path(dirfd, path, sizeof(path));
			n = getxattr(path, attr, value, size);
		}
	} else if (use_at()) {
		/* A size of 0 asks for the length, and needs a null pointer. */
		struct at_args args = {
			.value = size ? (uintptr_t)value : 0,
			.size = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size,
		};

		n = syscall(NR_GETXATTRAT, dirfd, name, AT_SYMLINK_NOFOLLOW, attr, &args,
			    sizeof(args));
	} else {
		int r = name_path(dirfd, name, path, sizeof(path));

		if (r < 0)
			return r;
		n = lgetxattr(path, attr, value, size);
	}
	return n < 0 ? -errno : n;
}

int xattr_set(int dirfd, const char *name, const char *attr, const void *value, size_t size,
	      int flags)
{
	char path[PATH_MAX];
	int r;

	if (size > LARGEST)
		return -E2BIG;
	name = resolve_empty(dirfd, name);
	if (!*name) {
		r = fsetxattr(dirfd, attr, value, size, flags);
		if (r < 0 && errno == EBADF) {
			fd_path(dirfd, path, sizeof(path));
			r = setxattr(path, attr, value, size, flags);
		}
	} else if (use_at()) {
		struct at_args args = {
			.value = (uintptr_t)value,
			.size = (uint32_t)size,
			.flags = (uint32_t)flags,
		};

		r = (int)syscall(NR_SETXATTRAT, dirfd, name, AT_SYMLINK_NOFOLLOW, attr, &args,
				 sizeof(args));
	} else {
		r = name_path(dirfd, name, path, sizeof(path));
		if (r < 0)
			return r;
		r = lsetxattr(path, attr, value, size, flags);
	}
	return r < 0 ? -errno : 0;
}

int xattr_remove(int dirfd, const char *name, const char *attr)
{
	char path[PATH_MAX];
	int r;

	name = resolve_empty(dirfd, name);
	if (!*name) {
		r = fremovexattr(dirfd, attr);
		if (r < 0 && errno == EBADF) {
			fd_path(dirfd, path, sizeof(path));
			r = removexattr(path, attr);
		}
	} else if (use_at()) {
		r = (int)syscall(NR_REMOVEXATTRAT, dirfd, name, AT_SYMLINK_NOFOLLOW, attr);
	} else {
		r = name_path(dirfd, name, path, sizeof(path));
		if (r < 0)
			return r;
		r = lremovexattr(path, attr);
	}
	return r < 0 ? -errno : 0;
}

ssize_t xattr_list(int dirfd, const char *name, char *list, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;

	name = resolve_empty(dirfd, name);
	if (!*name) {
		n = flistxattr(dirfd, list, size);
		if (n < 0 && errno == EBADF) {
			fd_path(dirfd, path, sizeof(path));
			n = listxattr(path, list, size);
		}
	} else if (use_at()) {
		n = syscall(NR_LISTXATTRAT, dirfd, name, AT_SYMLINK_NOFOLLOW, list, size);
	} else {
		int r = name_path(dirfd, name, path, sizeof(path));

		if (r < 0)
			return r;
		n = llistxattr(path, list, size);
	}
	return n < 0 ? -errno : n;
}

static ssize_t get_or_list(int dirfd, const char *name, const char *attr, char *p, size_t size)
{
	return attr ? xattr_get(dirfd, name, attr, p, size) : xattr_list(dirfd, name, p, size);
}

/* Two sizes suffice, as nothing is larger than the second: no race with a growing value. One more
 * byte than the length is allocated and zeroed, for callers that use it as text. */
static ssize_t read_alloc(int dirfd, const char *name, const char *attr, char **ret)
{
	_cleanup_(freep) char *p = malloc(FIRST_GUESS + 1);
	ssize_t n;

	if (!p)
		return -ENOMEM;
	n = get_or_list(dirfd, name, attr, p, FIRST_GUESS);
	if (n == -ERANGE) {
		freep(&p);
		p = malloc(LARGEST + 1);
		if (!p)
			return -ENOMEM;
		n = get_or_list(dirfd, name, attr, p, LARGEST);
		if (n >= 0) {
			char *shorter = realloc(p, (size_t)n + 1);

			p = shorter ?: p;
		}
	}
	if (n < 0)
		return n;
	p[n] = '\0';
	*ret = steal_ptr(&p);
	return n;
}

ssize_t xattr_get_alloc(int dirfd, const char *name, const char *attr, char **ret_value)
{
	return read_alloc(dirfd, name, attr, ret_value);
}

ssize_t xattr_list_alloc(int dirfd, const char *name, char **ret_list)
{
	ssize_t n = read_alloc(dirfd, name, NULL, ret_list);

	if (n == 0)
		freep(ret_list);
	if (n == 0)
		*ret_list = NULL;
	return n;
}

/* These describe the bytes and the number of one inode. */
static bool is_of_one_inode(const char *attr)
{
	return !strcmp(attr, "security.ima") || !strcmp(attr, "security.evm");
}

static int copy_one(int from, int to, const char *attr)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t n = xattr_get_alloc(from, "", attr, &value);
	int r = n == -ENODATA ? 0 : n < 0 ? (int)n : xattr_set(to, "", attr, value, (size_t)n, 0);

	/* The security policy decides about labels. */
	return r == -EPERM && !strncmp(attr, "security.", strlen("security.")) ? 0 : r;
}

int xattr_copy(int from, int to, bool (*counts)(const char *attr))
{
	_cleanup_(freep) char *names = NULL;
	ssize_t len = xattr_list_alloc(from, "", &names);

	if (len < 0)
		return len == -EOPNOTSUPP ? 0 : (int)len;
	for (const char *s = names; s && s < names + len; s += strlen(s) + 1) {
		int r = is_of_one_inode(s) || (counts && !counts(s)) ? 0 : copy_one(from, to, s);

		if (r < 0)
			return r;
	}
	return 0;
}
