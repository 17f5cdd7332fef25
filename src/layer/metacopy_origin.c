// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/metacopy_origin.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#define ORIGIN_ATTR  "trusted.overlay.origin"
#define ORIGIN_MAGIC 0xfb
#define ORIGIN_HEAD  21u

int metacopy_origin_read(int dirfd, const char *name, char origin[PATH_MAX])
{
	_cleanup_(closep) int fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	return fd < 0 ? fd : whiteout_metacopy(fd, origin);
}

/* As overlayfs notes it (struct ovl_fb): version, magic, length, flags, type, uuid of the file
 * system; the handle. */
static bool has_origin(int fd, int low_fd)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} low = { .h.handle_bytes = MAX_HANDLE_SZ };
	uint8_t origin[ORIGIN_HEAD + MAX_HANDLE_SZ];
	ssize_t n = xattr_get(fd, "", ORIGIN_ATTR, origin, sizeof(origin));
	int mount;

	if (n < (ssize_t)ORIGIN_HEAD || origin[0] != 0 || origin[1] != ORIGIN_MAGIC ||
	    origin[2] != n)
		return false;
	if (name_to_handle_at(low_fd, "", &low.h, &mount, AT_EMPTY_PATH) < 0)
		return false;
	return low.h.handle_type == origin[4] && low.h.handle_bytes == (unsigned)n - ORIGIN_HEAD &&
	       !memcmp(low.h.f_handle, origin + ORIGIN_HEAD, low.h.handle_bytes);
}

int metacopy_origin_check(int fd, int low_fd, const struct stat *low)
{
	struct stat up;

	if (fstat(fd, &up) < 0)
		return -errno;
	if (low->st_mode & S_IROTH || has_origin(fd, low_fd))
		return 0;
	if (up.st_uid != low->st_uid || up.st_gid != low->st_gid ||
	    up.st_mode & 0444 & ~low->st_mode)
		return -EUCLEAN;
	return xattr_get(fd, "", "system.posix_acl_access", NULL, 0) > 0 ? -EUCLEAN : 0;
}
