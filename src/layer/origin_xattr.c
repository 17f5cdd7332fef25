// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/origin_xattr.h"

#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <string.h>

void origin_xattr_write(const struct whiteout_style *st, int fd, const char *path)
{
	if (st->has_trusted &&
	    xattr_set(fd, "", ORIGIN_XATTR_TRUSTED_ATTR, path, strlen(path), 0) == 0)
		return;
	if (st->has_user_attr)
		xattr_set(fd, "", ORIGIN_XATTR_USER_ATTR, path, strlen(path), 0);
}

int origin_xattr_read(int dirfd, const char *name, bool is_doubted, char path[PATH_MAX])
{
	ssize_t len = xattr_get(dirfd, name, ORIGIN_XATTR_TRUSTED_ATTR, path, PATH_MAX - 1);

	if (len < 0 && !is_doubted)
		len = xattr_get(dirfd, name, ORIGIN_XATTR_USER_ATTR, path, PATH_MAX - 1);
	if (len <= 0 || memchr(path, '\0', (size_t)len) || !path_is_plain(path, (size_t)len))
		return 0;
	path[len] = '\0';
	return 1;
}
