// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/xattr_trust.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int xattr_trust_seal(int fd, const struct buf *mark)
{
	return xattr_set(fd, "", XATTR_TRUST_SEAL_ATTR, mark->data, mark->len, 0);
}

void xattr_trust_remove_seal(int fd)
{
	xattr_remove(fd, "", XATTR_TRUST_SEAL_ATTR);
}

int xattr_trust_unmark(int fd)
{
	int r = metacopy_guard_remove(fd);

	r = r ?: xattr_remove(fd, "", FORMAT_PARTIAL_ATTR);
	if (r < 0 && r != -ENODATA)
		return r;
	xattr_trust_remove_seal(fd);
	return 0;
}

bool xattr_trust_is_sealed(int dirfd, const char *name, const void *mark, size_t len)
{
	_cleanup_(freep) char *seal = NULL;
	ssize_t n = xattr_get_alloc(dirfd, name, XATTR_TRUST_SEAL_ATTR, &seal);

	return n > 0 && (size_t)n == len && !memcmp(seal, mark, len);
}

bool xattr_trust_covers(const struct stat *up, bool has_acl, bool is_at_own_place,
			const struct stat *low)
{
	if (is_at_own_place && low->st_mode & S_IROTH)
		return true;
	if (up->st_mode & S_IWOTH)
		return false;
	/* With an ACL the group's bits are those of everybody whom it names. */
	if (up->st_mode & S_IWGRP &&
	    (has_acl || up->st_gid != low->st_gid || !(low->st_mode & S_IRGRP)))
		return false;
	return up->st_uid == low->st_uid || up->st_uid == geteuid();
}

/* A user who may write the map decides which of a file's blocks are seen and which of the lower
 * file's. */
static bool map_covers(struct mapfile *map, const struct stat *low)
{
	uid_t owner;

	return mapfile_owner(map, &owner) == 0 &&
	       (owner == low->st_uid || low->st_mode & S_IROTH || owner == geteuid());
}

int xattr_trust_check(const struct layer *l, struct mapfile *map, int fd,
		      const struct partial_xattr *m, const struct stat *low)
{
	struct stat up;
	bool has_acl;

	if (!l->is_doubted)
		return 0;
	if (fstat(fd, &up) < 0)
		return -errno;
	if (!map_covers(map, low))
		return -EUCLEAN;
	if (m->is_sealed)
		return 0;
	has_acl = up.st_mode & S_IWGRP && xattr_get(fd, "", "system.posix_acl_access", NULL, 0) > 0;
	return xattr_trust_covers(&up, has_acl, !*m->path, low) ? 0 : -EUCLEAN;
}
