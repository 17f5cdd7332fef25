// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/whiteout.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
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
	if (!*name || !strncmp(name, WHITEOUT_PREFIX, WHITEOUT_PREFIX_LEN) || !strcmp(name, ".") ||
	    !strcmp(name, ".."))
		return WHITEOUT_META;
	return WHITEOUT_HIDES;
}

static const char *const reserved_prefixes[] = {
	"trusted.overlay.", "user.overlay.",   "user.fuseoverlayfs.",
	"user.veneer.",	    "trusted.veneer.", "security.fuseoverlayfs.",
};

bool whiteout_is_reserved_attr(const char *attr)
{
	for (size_t i = 0; i < sizeof(reserved_prefixes) / sizeof(*reserved_prefixes); i++)
		if (!strncmp(attr, reserved_prefixes[i], strlen(reserved_prefixes[i])))
			return true;
	return false;
}

static const char *const opaque_attrs[] = {
	"trusted.overlay.opaque",
	"user.overlay.opaque",
	"user.fuseoverlayfs.opaque",
};

static const char *const whiteout_attrs[] = { "trusted.overlay.whiteout", "user.overlay.whiteout" };

static const char *const redirect_attrs[] = { WHITEOUT_REDIRECT_ATTR, "user.overlay.redirect" };

#define METACOPY_HEAD 4

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static bool is_one_of(const char *attr, const char *const *attrs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(attr, attrs[i]))
			return true;
	return false;
}

static int read_redirect(int dirfd, const char *attr, char redirect[PATH_MAX])
{
	ssize_t len = xattr_get(dirfd, "", attr, redirect, PATH_MAX - 1);
	bool is_path;

	if (len < 0)
		return len == -ERANGE ? -EUCLEAN : (int)len;
	redirect[len] = '\0';
	is_path = redirect[0] == '/';
	if (memchr(redirect, '\0', (size_t)len) ||
	    !path_is_plain(redirect + is_path, (size_t)len - is_path) ||
	    (!is_path && strchr(redirect, '/')))
		return -EUCLEAN;
	return WHITEOUT_DIR_REDIRECTED;
}

static bool is_ours_alone(int dirfd)
{
	struct stat st;

	return fstat(dirfd, &st) == 0 && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

int whiteout_dir_kind(int dirfd, bool is_doubted, char redirect[PATH_MAX])
{
	bool has_files;

	return whiteout_dir_marks(dirfd, is_doubted, redirect, &has_files);
}

int whiteout_dir_marks(int dirfd, bool is_doubted, char redirect[PATH_MAX], bool *ret_has_files)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(dirfd, "", &list);
	const char *redirected = NULL;

	*ret_has_files = false;
	if (len == -EOPNOTSUPP || len == -ENOSYS)
		return WHITEOUT_DIR_MERGED;
	if (len < 0)
		return (int)len;
	for (char *a = list; a && a < list + len; a += strlen(a) + 1) {
		char value[4] = "";

		if (is_one_of(a, opaque_attrs, LENGTH(opaque_attrs)) &&
		    xattr_get(dirfd, "", a, value, sizeof(value)) >= 1 && value[0] == 'y')
			return WHITEOUT_DIR_OPAQUE;
		*ret_has_files |= value[0] == 'x';
		/* The privileged one wins: a container may have been allowed to write the other. */
		if (is_one_of(a, redirect_attrs, LENGTH(redirect_attrs)) &&
		    (!redirected || !strcmp(a, redirect_attrs[0])))
			redirected = a;
	}
	if (!redirected)
		return WHITEOUT_DIR_MERGED;
	if (is_doubted && strcmp(redirected, redirect_attrs[0]) != 0 && !is_ours_alone(dirfd))
		return -EUCLEAN;
	return read_redirect(dirfd, redirected, redirect);
}

bool whiteout_is_file(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size)
		return false;
	for (size_t i = 0; i < LENGTH(whiteout_attrs); i++)
		if (xattr_get(dirfd, name, whiteout_attrs[i], NULL, 0) >= 0)
			return true;
	return false;
}

bool whiteout_may_be_redirected(int dirfd, const char *name)
{
	char list[512];
	ssize_t len = xattr_list(dirfd, name, list, sizeof(list));

	for (const char *a = list; a < list + len; a += strlen(a) + 1)
		if (is_one_of(a, redirect_attrs, LENGTH(redirect_attrs)))
			return true;
	return len == -ERANGE;
}

/* Only attributes that take privileges to write: the owner of a file may give it user.* attributes,
 * and would read files of other users by them. */
int whiteout_metacopy(int fd, char redirect[PATH_MAX])
{
	uint8_t value[METACOPY_HEAD];
	ssize_t len = xattr_get(fd, "", WHITEOUT_METACOPY_ATTR, value, sizeof(value));
	int r;

	if (len == -ENODATA || len == -EOPNOTSUPP)
		return 0;
	if (len < 0 && len != -ERANGE)
		return (int)len;
	/* Version, length, flags, kind of digest; the digest, which would have to be verified,
	 * makes it longer. */
	if (len != 0 && (len != METACOPY_HEAD || value[0] != 0 || value[1] != METACOPY_HEAD ||
			 value[2] || value[3]))
		return -EUCLEAN;
	r = read_redirect(fd, redirect_attrs[0], redirect);
	if (r == -ENODATA)
		redirect[0] = '\0';
	return r < 0 && r != -ENODATA ? r : 1;
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

bool whiteout_is_by_name(int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];
	struct stat st;

	return hidden_name(name, hidden) == 0 &&
	       fstatat(dirfd, hidden, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int whiteout_set_opaque(const struct whiteout_style *st, int dirfd)
{
	int r = -EOPNOTSUPP, fd;

	if (st->has_trusted) {
		r = xattr_set(dirfd, "", "trusted.overlay.opaque", "y", 1, 0);
		/* An upper on overlayfs itself, before Linux 6.7. */
		if (r != -EOPNOTSUPP && r != -EPERM)
			return r;
	}
	if (st->has_user_attr)
		r = xattr_set(dirfd, "", "user.overlay.opaque", "y", 1, 0);
	/* Readers of the other implementations do not all look at user.* : leave the file form
	 * too. */
	fd = openat(dirfd, WHITEOUT_OPAQUE_NAME, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0700);
	if (fd < 0)
		return r == 0 ? 0 : -errno;
	close(fd);
	return 0;
}

int whiteout_set_redirect(const struct whiteout_style *st, int dirfd, const char *path)
{
	char value[PATH_MAX];
	int r = -EOPNOTSUPP, len = snprintf(value, sizeof(value), "/%s", path);

	if (len >= (int)sizeof(value))
		return -ENAMETOOLONG;
	/* Without privileges only this one can be read: a reader must not take the directory for
	 * unmerged. */
	if (st->has_user_attr)
		r = xattr_set(dirfd, "", redirect_attrs[1], value, (size_t)len, 0);
	if ((r == 0 || r == -EOPNOTSUPP) && st->has_trusted)
		r = xattr_set(dirfd, "", redirect_attrs[0], value, (size_t)len, 0);
	return r;
}

int whiteout_has_redirect(int dirfd)
{
	for (size_t i = 0; i < LENGTH(redirect_attrs); i++) {
		ssize_t len = xattr_get(dirfd, "", redirect_attrs[i], NULL, 0);

		if (len >= 0)
			return 1;
		if (len != -ENODATA && len != -EOPNOTSUPP)
			return (int)len;
	}
	return 0;
}

int whiteout_remove_redirect(int dirfd)
{
	for (size_t i = 0; i < LENGTH(redirect_attrs); i++) {
		ssize_t len = xattr_get(dirfd, "", redirect_attrs[i], NULL, 0);
		int r = len < 0 ? (int)len : xattr_remove(dirfd, "", redirect_attrs[i]);

		if (r < 0 && r != -ENODATA && r != -EOPNOTSUPP)
			return r;
	}
	return 0;
}
