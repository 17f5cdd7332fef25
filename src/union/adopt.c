// SPDX-License-Identifier: Apache-2.0
#include "veneer/adopt.h"

#include "veneer/cleanup.h"
#include "veneer/format.h"
#include "veneer/guard.h"
#include "veneer/log.h"
#include "veneer/mark.h"
#include "veneer/path.h"
#include "veneer/trust.h"
#include "veneer/xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int adopt_metacopy_origin(int dirfd, const char *name, char origin[PATH_MAX])
{
	_cleanup_(closep) int fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	return fd < 0 ? fd : whiteout_metacopy(fd, origin);
}

static int write_mark(struct tree *t, int fd, struct ient *base, const struct stat *st)
{
	_cleanup_(buf_release) struct buf value = { 0 };
	_cleanup_(freep) char *path = image_path(base);
	struct mark m = { .lower_size = (uint64_t)st->st_size,
			  .lower_mtime_s = st->st_mtim.tv_sec, .lower_mtime_ns = (uint32_t)st->st_mtim.tv_nsec };
	int r;

	if (!path)
		return -ENOMEM;
	if (strlen(path) >= sizeof(m.path))
		return -ENAMETOOLONG;
	strcpy(m.path, path);
	r = mapfile_file_new(t->map, m.lower_size, &m.file_id);
	if (r < 0)
		return r;
	/* Only now: the first entry of a map gives it its number. */
	m.uuid_low = (uint32_t)mapfile_uuid(t->map);
	r = mark_encode(&m, &value);
	if (r == 0 && t->style.has_trusted)
		r = trust_seal(fd, &value);
	if (r == 0)
		r = xattr_set(fd, "", FORMAT_PARTIAL_ATTR, value.data, value.len, 0);
	if (r < 0)
		mapfile_file_gone(t->map, m.file_id);
	return r;
}

int adopt_metacopy(struct tree *t, int dirfd, const char *name, struct ient *base)
{
	_cleanup_(closep) int fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	char origin[PATH_MAX];
	struct stat st, lower;
	int r;

	if (fd < 0)
		return fd;
	LOCK_SCOPE(&t->adopt_lock);
	r = whiteout_metacopy(fd, origin);
	if (r != 1)
		return r; /* somebody was faster */
	r = fstat(fd, &st) < 0 ? -errno : image_stat(t->image, base, &lower);
	if (r == 0 && st.st_size != lower.st_size) {
		log_error("%s: %s: a metacopy of a file that has another size now", t->upper->path, name);
		return -EUCLEAN;
	}
	/* From here on the mark says where its bytes are; what overlayfs wrote becomes the guard. */
	if (r == 0)
		r = write_mark(t, fd, base, &lower);
	return r < 0 ? r : guard_set(fd, guard_for(t->style.has_trusted));
}
