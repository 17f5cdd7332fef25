// SPDX-License-Identifier: Apache-2.0
#include "entry_attrs.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/xattr.h"

#include <string.h>

bool entry_attrs_counts(const char *name)
{
	return !whiteout_is_reserved_attr(name) && !mode_xattr_is_attr(name) &&
	       strcmp(name, "security.selinux") != 0;
}

static ssize_t list(int fd, char **ret)
{
	ssize_t n = xattr_list_alloc(fd, "", ret);

	return n == -EOPNOTSUPP || n == -ENOSYS ? 0 : n;
}

/* Has b all attributes of a, with the same values? */
static int has_all(int a, int b)
{
	_cleanup_(freep) char *names = NULL;
	ssize_t len = list(a, &names);

	for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1) {
		_cleanup_(freep) char *x = NULL, *y = NULL;
		ssize_t nx, ny;

		if (!entry_attrs_counts(name))
			continue;
		nx = xattr_get_alloc(a, "", name, &x);
		ny = xattr_get_alloc(b, "", name, &y);
		if (nx < 0 || ny < 0)
			return ny == -ENODATA || ny == -EOPNOTSUPP ? 0 : (int)(nx < 0 ? nx : ny);
		if (nx != ny || memcmp(x, y, (size_t)nx) != 0)
			return 0;
	}
	return len < 0 ? (int)len : 1;
}

int entry_attrs_same_xattrs(int a, int b)
{
	int r = has_all(a, b);

	return r == 1 ? has_all(b, a) : r;
}

int entry_attrs_same(int a, const struct stat *x, int b, const struct stat *y)
{
	if (x->st_mode != y->st_mode || x->st_uid != y->st_uid || x->st_gid != y->st_gid)
		return 0;
	return entry_attrs_same_xattrs(a, b);
}
