// SPDX-License-Identifier: Apache-2.0
#include "upper_root.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int copy_xattrs(int from, int to)
{
	_cleanup_(freep) char *names = NULL;
	ssize_t len = xattr_list_alloc(from, "", &names);
	int r = 0;

	for (const char *name = names; r == 0 && len > 0 && name < names + len;
	     name += strlen(name) + 1) {
		_cleanup_(freep) char *value = NULL;
		ssize_t n;

		if (whiteout_is_reserved_attr(name) || mode_xattr_is_attr(name) ||
		    !strcmp(name, "security.selinux"))
			continue;
		n = xattr_get_alloc(from, "", name, &value);
		r = n < 0 ? (int)n : xattr_set(to, "", name, value, (size_t)n, 0);
		r = r == -EPERM || r == -EOPNOTSUPP || r == -ENODATA ? 0 : r;
	}
	return len == -EOPNOTSUPP ? 0 : len < 0 ? (int)len : r;
}

int upper_root_make(const char *path, const char *like)
{
	_cleanup_(closep) int from = open(like, O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = -1;
	struct stat st;
	int r;

	if (from < 0 || fstat(from, &st) < 0 || mkdir(path, 0700) < 0)
		return -errno;
	to = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to < 0)
		return -errno;
	/* Without privileges the directory belongs to this user. */
	if (fchown(to, st.st_uid, st.st_gid) < 0 && errno != EPERM && errno != EINVAL)
		return -errno;
	r = copy_xattrs(from, to);
	return r == 0 && fchmod(to, st.st_mode & 07777) < 0 ? -errno : r;
}
