// SPDX-License-Identifier: Apache-2.0
#include "archive_fill.h"

#include "archive_library.h"
#include "entry_attrs.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/sys/xattr.h"

#include <limits.h>
#include <string.h>

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_set_gid) CALL(archive_entry_set_mode) CALL(archive_entry_set_mtime) \
	CALL(archive_entry_set_rdev) CALL(archive_entry_set_symlink) \
	CALL(archive_entry_set_uid) CALL(archive_entry_xattr_add_entry)
/* clang-format on */

ARCHIVE_LIBRARY_LOADER(CALLS)

int archive_fill_stat(struct archive_entry *to, const struct stat *st)
{
	const struct timespec *t = &st->st_mtim;
	int r = load();

	if (r < 0)
		return r;
	lib.archive_entry_set_mode(to, st->st_mode);
	lib.archive_entry_set_uid(to, st->st_uid);
	lib.archive_entry_set_gid(to, st->st_gid);
	/* Drop the fraction before 1970: the library would write -0.5 s as "-1.5". */
	lib.archive_entry_set_mtime(to, t->tv_sec, t->tv_sec < 0 ? 0 : t->tv_nsec);
	lib.archive_entry_set_rdev(to,
				   S_ISBLK(st->st_mode) || S_ISCHR(st->st_mode) ? st->st_rdev : 0);
	return 0;
}

/* A keyword of PAX is ASCII without "=". The library encodes other bytes and "%" as %XX, which
 * hardly any program decodes. */
static bool is_keyword(const char *attr)
{
	for (; *attr; attr++)
		if (*attr <= ' ' || *attr >= 0x7f || *attr == '%' || *attr == '=')
			return false;
	return true;
}

int archive_fill_xattrs(struct archive_entry *to, int fd, const struct stat *st, bool override,
			const char *path)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(fd, "", &list);
	int r = load();

	if (r < 0 || len == -EOPNOTSUPP || len == -ENOSYS)
		return r;
	for (char *a = list; a && a < list + len; a += strlen(a) + 1) {
		_cleanup_(freep) char *value = NULL;
		ssize_t n;

		if (!entry_attrs_counts(a))
			continue;
		n = xattr_get_alloc(fd, "", a, &value);
		if (n == -ENODATA)
			continue;
		if (n < 0)
			return (int)n;
		if (override && !strcmp(a, "system.posix_acl_access"))
			mode_xattr_limit_acl(value, (size_t)n, st->st_mode);
		if (path && !is_keyword(a))
			log_warn("%s: the attribute %s gets another name in the archive, which "
				 "cannot have this one",
				 path, a);
		lib.archive_entry_xattr_add_entry(to, a, value ? value : "", (size_t)n);
	}
	return len < 0 ? (int)len : 0;
}

int archive_fill_target(struct archive_entry *to, struct image *img, struct image_entry *e)
{
	char target[PATH_MAX + 1];
	ssize_t n = image_readlink(img, e, target, sizeof(target) - 1);
	int r = load();

	if (r < 0 || n < 0)
		return r < 0 ? r : (int)n;
	target[n] = '\0';
	lib.archive_entry_set_symlink(to, target);
	return 0;
}
