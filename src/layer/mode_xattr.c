// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/mode_xattr.h"

#include "veneer/sys/xattr.h"

#include <endian.h>
#include <errno.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 128

/* In the order in which fuse-overlayfs looks for them. */
static const char *const attrs[] = {
	"security.fuseoverlayfs.override_stat",
	"user.containers.override_stat",
	"user.fuseoverlayfs.override_stat",
};
#define NATTRS (sizeof(attrs) / sizeof(*attrs))

const char *mode_xattr_detect(int rootfd)
{
	for (size_t i = 0; i < NATTRS; i++)
		if (xattr_get(rootfd, "", attrs[i], NULL, 0) > 0)
			return attrs[i];
	return NULL;
}

const char *mode_xattr_for_option(int xattr_permissions)
{
	return xattr_permissions == 1 ? attrs[0] : xattr_permissions == 2 ? attrs[1] : NULL;
}

bool mode_xattr_is_attr(const char *attr)
{
	for (size_t i = 0; i < NATTRS; i++)
		if (!strcmp(attr, attrs[i]))
			return true;
	return false;
}

static bool number(const char **p, int base, unsigned long max, unsigned long *ret)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	errno = 0;
	*ret = strtoul(*p, &end, base);
	if (errno || *ret > max)
		return false;
	*p = end;
	return true;
}

bool mode_xattr_parse(const char *text, size_t len, struct stat *st)
{
	unsigned long uid, gid, mode;
	char buf[VALUE_MAX];
	const char *p = buf;

	if (len >= sizeof(buf) || memchr(text, '\0', len))
		return false;
	memcpy(buf, text, len);
	buf[len] = '\0';
	if (!number(&p, 10, UINT32_MAX - 1, &uid) || *p++ != ':' ||
	    !number(&p, 10, UINT32_MAX - 1, &gid) || *p++ != ':' ||
	    !number(&p, 8, 0177777, &mode) || (*p && *p != ':'))
		return false;
	st->st_uid = (uid_t)uid;
	st->st_gid = (gid_t)gid;
	/* The mode may come with a file type, which the file itself tells. */
	st->st_mode = (st->st_mode & S_IFMT) | ((mode_t)mode & 07777);
	return true;
}

void mode_xattr_apply(int dirfd, const char *name, const char *attr, struct stat *st)
{
	char value[VALUE_MAX];
	ssize_t n;

	if (!attr || (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)))
		return;
	n = xattr_get(dirfd, name, attr, value, sizeof(value));
	if (n > 0)
		mode_xattr_parse(value, (size_t)n, st);
}

int mode_xattr_store(int fd, const char *attr, const struct stat *st)
{
	char value[VALUE_MAX];
	int n = snprintf(value, sizeof(value), "%u:%u:%04o:%s", (unsigned)st->st_uid,
			 (unsigned)st->st_gid, (unsigned)st->st_mode & 07777,
			 S_ISDIR(st->st_mode) ? "dir" : "file");

	return xattr_set(fd, "", attr, value, (size_t)n, 0);
}

int mode_xattr_keep_access(int fd, mode_t real_mode)
{
	if ((real_mode & 0700) == 0700)
		return 0;
	return fchmod(fd, mode_xattr_acl_mode(real_mode) & 07777) < 0 ? -errno : 0;
}

void mode_xattr_limit_acl(void *value, size_t size, mode_t mode)
{
	const struct posix_acl_xattr_header *header = value;
	struct posix_acl_xattr_entry *e = (struct posix_acl_xattr_entry *)(header + 1),
				     *group = NULL, *mask = NULL;

	if (size < sizeof(*header) || le32toh(header->a_version) != POSIX_ACL_XATTR_VERSION ||
	    (size - sizeof(*header)) % sizeof(*e) != 0)
		return;
	for (size_t n = (size - sizeof(*header)) / sizeof(*e); n > 0; n--, e++) {
		switch (le16toh(e->e_tag)) {
		case ACL_USER_OBJ:
			e->e_perm = htole16(mode >> 6 & 7);
			break;
		case ACL_GROUP_OBJ:
			group = e;
			break;
		case ACL_MASK:
			mask = e;
			break;
		case ACL_OTHER:
			e->e_perm = htole16(mode & 7);
			break;
		}
	}
	if (mask || group)
		(mask ?: group)->e_perm = htole16(mode >> 3 & 7);
}
