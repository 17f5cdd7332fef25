// SPDX-License-Identifier: Apache-2.0
#include "veneer/whiteout.h"

#include "veneer/cleanup.h"
#include "veneer/xattr.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum whiteout_name whiteout_name_kind(const char *name)
{
	if (strncmp(name, WHITEOUT_PREFIX, WHITEOUT_PREFIX_LEN) != 0)
		return WHITEOUT_PLAIN;
	if (!strcmp(name, WHITEOUT_OPAQUE_NAME))
		return WHITEOUT_OPAQUE;
	name += WHITEOUT_PREFIX_LEN;
	if (!*name || !strncmp(name, WHITEOUT_PREFIX, WHITEOUT_PREFIX_LEN) || !strcmp(name, ".") || !strcmp(name, ".."))
		return WHITEOUT_META;
	return WHITEOUT_HIDES;
}

static const char *const reserved_prefixes[] = {
	"trusted.overlay.", "user.overlay.", "user.fuseoverlayfs.", "user.veneer.", "security.fuseoverlayfs.",
};

bool whiteout_is_reserved_attr(const char *attr)
{
	for (size_t i = 0; i < sizeof(reserved_prefixes) / sizeof(*reserved_prefixes); i++)
		if (!strncmp(attr, reserved_prefixes[i], strlen(reserved_prefixes[i])))
			return true;
	return false;
}

static const char *const opaque_attrs[] = {
	"trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque",
};

int whiteout_dir_is_opaque(int dirfd)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(dirfd, "", &list);

	if (len == -EOPNOTSUPP || len == -ENOSYS)
		return 0;
	if (len < 0)
		return (int)len;
	for (char *a = list; a && a < list + len; a += strlen(a) + 1) {
		char value[4];

		if (!strcmp(a, "trusted.overlay.redirect") || !strcmp(a, "user.overlay.redirect"))
			return -EUCLEAN;
		for (size_t i = 0; i < sizeof(opaque_attrs) / sizeof(*opaque_attrs); i++)
			if (!strcmp(a, opaque_attrs[i]) && xattr_get(dirfd, "", a, value, sizeof(value)) >= 1 &&
			    value[0] == 'y')
				return 1;
	}
	return 0;
}

static int hidden_name(const char *name, char out[NAME_MAX + 1])
{
	int n = snprintf(out, NAME_MAX + 1, WHITEOUT_PREFIX "%s", name);

	return n > NAME_MAX ? -ENAMETOOLONG : 0;
}

int whiteout_make(const struct whiteout_style *st, int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];
	int fd, r;

	if (st->has_device)
		return mknodat(dirfd, name, S_IFCHR, makedev(0, 0)) == 0 ? 0 : -errno;
	r = hidden_name(name, hidden);
	if (r < 0)
		return r;
	fd = openat(dirfd, hidden, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0700);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int whiteout_remove(int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];
	struct stat st;

	if (hidden_name(name, hidden) == 0 && unlinkat(dirfd, hidden, 0) < 0 && errno != ENOENT)
		return -errno;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!whiteout_is_device(st.st_mode, st.st_rdev))
		return 0;
	return unlinkat(dirfd, name, 0) == 0 ? 0 : -errno;
}

int whiteout_set_opaque(const struct whiteout_style *st, int dirfd)
{
	int r = -EOPNOTSUPP, fd;

	if (st->has_trusted)
		return xattr_set(dirfd, "", "trusted.overlay.opaque", "y", 1, 0);
	if (st->has_user_attr)
		r = xattr_set(dirfd, "", "user.overlay.opaque", "y", 1, 0);
	/* Readers of the other implementations do not all look at user.* : leave the file form too. */
	fd = openat(dirfd, WHITEOUT_OPAQUE_NAME, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0700);
	if (fd < 0)
		return r == 0 ? 0 : -errno;
	close(fd);
	return 0;
}
