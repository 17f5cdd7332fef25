// SPDX-License-Identifier: Apache-2.0
#include "metacopy_import.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/metacopy_origin.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int check_base(struct union_fs *t, int fd, struct image_entry *base, const struct stat *low)
{
	_cleanup_(closep) int low_fd = -1;

	if (!t->upper->is_doubted)
		return 0;
	low_fd = image_open_path(t->image, base);
	return low_fd < 0 ? low_fd : metacopy_origin_check(fd, low_fd, low);
}

static int write_mark(struct union_fs *t, int fd, struct image_entry *base, const struct stat *st)
{
	_cleanup_(buf_release) struct buf value = { 0 };
	_cleanup_(freep) char *path = image_path(base);
	struct partial_xattr m = { .lower_size = (uint64_t)st->st_size,
				   .lower_mtime_s = st->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)st->st_mtim.tv_nsec };
	int r;

	if (!path)
		return -ENOMEM;
	if (strlen(path) >= sizeof(m.path))
		return -ENAMETOOLONG;
	strcpy(m.path, path);
	r = mapfile_file_new(t->map, m.lower_size, &m.file_id);
	if (r < 0)
		return r;
	/* Read it here: the first entry gives a map its number. */
	m.uuid_low = (uint32_t)mapfile_uuid(t->map);
	r = partial_xattr_encode(&m, &value);
	if (r == 0 && t->style.has_trusted)
		r = xattr_trust_seal(fd, &value);
	if (r == 0)
		r = xattr_set(fd, "", FORMAT_PARTIAL_ATTR, value.data, value.len, 0);
	if (r < 0)
		mapfile_file_gone(t->map, m.file_id);
	return r;
}

int metacopy_import(struct union_fs *t, int dirfd, const char *name, struct image_entry *base)
{
	_cleanup_(closep) int fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	char origin[PATH_MAX];
	struct stat st, lower;
	int r;

	if (fd < 0)
		return fd;
	LOCK_SCOPE(&t->import_lock);
	r = whiteout_metacopy(fd, origin);
	if (r != 1)
		return r; /* another mount was faster */
	r = fstat(fd, &st) < 0 ? -errno : image_stat(t->image, base, &lower);
	if (r == 0 && st.st_size != lower.st_size) {
		log_error("%s: %s: a metacopy of a lower file whose size has changed",
			  t->upper->path, name);
		return -EUCLEAN;
	}
	if (r == 0 && *origin != '/')
		r = check_base(t, fd, base, &lower);
	if (r == -EUCLEAN)
		log_error("%s: %s: " METACOPY_ORIGIN_SAID, t->upper->path, name);
	/* From here on the mark leads to the bytes; the attribute that overlayfs wrote becomes the
	 * guard. */
	if (r == 0)
		r = write_mark(t, fd, base, &lower);
	return r < 0 ? r : metacopy_guard_set(fd, metacopy_guard_for(t->style.has_trusted));
}
