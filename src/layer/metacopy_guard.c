// SPDX-License-Identifier: Apache-2.0
/* One attribute where one is enough. On ext4 it lies in a block that up to 1024 inodes with the
 * same attributes share. With a second attribute each file takes and frees a block on the way. That
 * costs 20 us, and milliseconds where freed blocks are discarded at once
 * (doc/decisions/0002-guard-of-partial-files.md). The redirect is set before the metacopy and
 * removed after it: older kernels would follow a metacopy alone. */
#include "veneer/layer/metacopy_guard.h"

#include "veneer/layer/whiteout.h"
#include "veneer/sys/xattr.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* Before Linux 6.6, or a version that cannot be read. */
static bool ignores_values(void)
{
	static _Atomic int known = -1;
	unsigned major, minor;
	struct utsname u;
	int is_old = atomic_load(&known);

	if (is_old < 0) {
		is_old = uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 ||
			 major < 6 || (major == 6 && minor < 6);
		atomic_store(&known, is_old);
	}
	return is_old;
}

enum metacopy_guard metacopy_guard_for(bool has_trusted)
{
	return !has_trusted	  ? METACOPY_GUARD_USER
	       : ignores_values() ? METACOPY_GUARD_TRUSTED_REDIRECT
				  : METACOPY_GUARD_TRUSTED;
}

static int remove_one(int fd, const char *attr)
{
	int r = xattr_remove(fd, "", attr);

	/* Without privileges nobody can tell whether there is one of trusted.*; the mount that
	 * wrote it had none either. */
	return r == -ENODATA || r == -EOPNOTSUPP || r == -EPERM ? 0 : r;
}

static bool has_value(int dirfd, const char *name, const char *attr)
{
	char value[sizeof(METACOPY_GUARD_VALUE)];

	return xattr_get(dirfd, name, attr, value, sizeof(value)) ==
		       (ssize_t)strlen(METACOPY_GUARD_VALUE) &&
	       !memcmp(value, METACOPY_GUARD_VALUE, strlen(METACOPY_GUARD_VALUE));
}

int metacopy_guard_set(int fd, enum metacopy_guard guard)
{
	const char *attr = guard == METACOPY_GUARD_USER ? METACOPY_GUARD_USER_ATTR
							: WHITEOUT_METACOPY_ATTR;
	int r = 0;

	if (guard == METACOPY_GUARD_TRUSTED_REDIRECT)
		r = xattr_set(fd, "", WHITEOUT_REDIRECT_ATTR, METACOPY_GUARD_REDIRECT,
			      strlen(METACOPY_GUARD_REDIRECT), 0);
	return r ?: xattr_set(fd, "", attr, METACOPY_GUARD_VALUE, strlen(METACOPY_GUARD_VALUE), 0);
}

int metacopy_guard_remove(int fd)
{
	int r = remove_one(fd, WHITEOUT_METACOPY_ATTR);

	r = r ?: remove_one(fd, WHITEOUT_REDIRECT_ATTR);
	return r ?: remove_one(fd, METACOPY_GUARD_USER_ATTR);
}

bool metacopy_guard_is_set(int dirfd, const char *name)
{
	return has_value(dirfd, name, METACOPY_GUARD_USER_ATTR) ||
	       has_value(dirfd, name, WHITEOUT_METACOPY_ATTR);
}
