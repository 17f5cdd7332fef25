// SPDX-License-Identifier: Apache-2.0
#include "partial_mark.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int set_path(struct partial_xattr *m, const struct image_entry *e)
{
	_cleanup_(freep) char *path = image_path(e);

	if (!path)
		return -ENOMEM;
	if (strlen(path) >= sizeof(m->path))
		return -ENAMETOOLONG;
	strcpy(m->path, path);
	return 0;
}

int partial_mark_guard(const struct whiteout_style *style, int fd)
{
	int r = metacopy_guard_set(fd, metacopy_guard_for(style->has_trusted));

	/* Overlayfs as the upper refuses the attribute before Linux 6.7. */
	if ((r == -EOPNOTSUPP || r == -EPERM) && style->has_trusted)
		r = metacopy_guard_set(fd, METACOPY_GUARD_USER);
	return r;
}

bool partial_mark_needs_no_guard(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -E2BIG || r == -EOPNOTSUPP || r == -EPERM;
}

/* If only the guard has no room, the change proceeds all the same, as on a full disk; `veneer
 * check` reports it. */
static int put_guard(struct union_fs *t, int fd)
{
	int r = partial_mark_guard(&t->style, fd);

	if (!partial_mark_needs_no_guard(r))
		return r;
	if (!atomic_exchange(&t->has_said_unguarded, true))
		log_warn("%s: no room for the attribute by which overlayfs refuses a partial file "
			 "(%s): later veneer check "
			 "--repair sets it",
			 t->upper->path, strerror(-r));
	return 0;
}

int partial_mark_write(const struct whiteout_style *style, int fd, const struct partial_xattr *m,
		       bool is_covered)
{
	_cleanup_(buf_release) struct buf value = { 0 };
	const bool has_seal = *m->path && style->has_trusted;
	int r = partial_xattr_encode(m, &value);

	if (r < 0)
		return r;
	r = has_seal ? xattr_trust_seal(fd, &value) : 0;
	r = r ?: mode_relax_set_xattr(fd, FORMAT_PARTIAL_ATTR, value.data, value.len);
	if (r == 0 || !has_seal)
		return r;
	xattr_trust_remove_seal(fd);
	if (!is_covered || (r != -ENOSPC && r != -E2BIG && r != -ERANGE))
		return r;
	return mode_relax_set_xattr(fd, FORMAT_PARTIAL_ATTR, value.data, value.len);
}

/* Make a partial file: full size, no data, and a mark that names the file under its holes. The map
 * entry comes before the mark, the mark before the guard and the name. */
int partial_mark_make(struct union_fs *t, struct inode *i, int fd, bool has_path,
		      const struct stat *st, const struct stat *up)
{
	struct partial_xattr m = { .lower_size = (uint64_t)st->st_size,
				   .lower_mtime_s = st->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)st->st_mtim.tv_nsec };
	const bool has_acl = !i->src.below->is_unresolved;
	file_id_t id;
	int r;

	if (has_path || (t->style.has_trusted && !xattr_trust_covers(up, has_acl, true, st))) {
		r = set_path(&m, i->lower);
		if (r < 0)
			return r;
	}
	if (ftruncate(fd, st->st_size) < 0)
		return -errno;
	r = mapfile_file_new(t->map, m.lower_size, &id);
	if (r < 0)
		return r;
	m.file_id = id;
	m.uuid_low = (uint32_t)mapfile_uuid(t->map);
	r = partial_mark_write(&t->style, fd, &m,
			       *m.path && xattr_trust_covers(up, has_acl, false, st));
	r = r ?: put_guard(t, fd);
	if (r < 0) {
		mapfile_file_gone(t->map, id);
		return r;
	}
	i->src.map = t->map;
	i->src.id = id;
	return 0;
}

static int write_copy_mark(struct union_fs *t, int fd, const struct partial_xattr *m, uint64_t size)
{
	/* The mark must be sealed for good: later changes of the file's owner or mode do not check
	 * it. */
	int r = partial_mark_write(&t->style, fd, m, false);

	r = r ?: put_guard(t, fd);
	return r == 0 && ftruncate(fd, (off_t)size) < 0 ? -errno : r;
}

int partial_mark_make_copy(struct union_fs *t, struct inode *i, int fd,
			   const struct partial_mark_copy *c)
{
	MODE_RELAX_SCOPE(fd, "");
	struct partial_xattr m = { .is_copy = true,
				   .lower_size = (uint64_t)c->st->st_size,
				   .lower_mtime_s = c->st->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)c->st->st_mtim.tv_nsec };
	int r = set_path(&m, c->of);

	r = r ?: mapfile_file_new(t->map, m.lower_size, &m.file_id);
	if (r < 0)
		return r;
	m.uuid_low = (uint32_t)mapfile_uuid(t->map);
	r = write_copy_mark(t, fd, &m, c->size);
	if (r < 0 && xattr_trust_unmark(fd) == 0) {
		mapfile_file_gone(t->map, m.file_id);
		return r;
	}
	i->src.map = t->map;
	i->src.below = c->src;
	i->src.id = m.file_id; /* threads without the lock test the id */
	return r;
}

/* Write the mark from this mount's knowledge: the file's owner may have replaced the stored one. */
static int write_origin(struct union_fs *t, struct inode *i, int fd, bool is_covered,
			const struct stat *low)
{
	struct partial_xattr m = { .file_id = i->src.id,
				   .uuid_low = (uint32_t)mapfile_uuid(t->map),
				   .lower_size = (uint64_t)low->st_size,
				   .lower_mtime_s = low->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)low->st_mtim.tv_nsec };
	int r = set_path(&m, i->lower);

	return r ?: partial_mark_write(&t->style, fd, &m, is_covered);
}

static int fix_origin(struct union_fs *t, struct inode *i, int fd, const struct stat *attributes,
		      bool has_acl)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	struct partial_xattr m;
	struct stat up, low;
	bool is_lasting;
	int r = source_read_mark(fd, "", &m, NULL);

	if (r == -EACCES && (x = mode_relax_begin(fd, "")))
		r = source_read_mark(fd, "", &m, NULL);
	if (r != 1)
		return r;
	r = fstat(fd, &up) < 0 ? -errno : image_stat(t->image, i->lower, &low);
	if (r < 0)
		return r;
	is_lasting = *m.path && (m.is_sealed || !t->style.has_trusted);
	if (is_lasting || (attributes && xattr_trust_covers(attributes, has_acl, !*m.path, &low)))
		return 0;
	return write_origin(t, i, fd, xattr_trust_covers(attributes ?: &up, has_acl, false, &low),
			    &low);
}

/* Seal the mark of a copy of another file whose seal was lost, as by a tar without trusted.*. */
static int fix_copy(struct union_fs *t, struct inode *i, int fd)
{
	struct image_entry *e;
	struct partial_xattr m;
	struct source *below;
	int r = source_read_mark(fd, "", &m, NULL);

	/* A copy without a lower file needs no seal. */
	if (r != 1 || !m.is_copy || m.is_sealed || !t->style.has_trusted || !i->src.below)
		return r;
	r = image_lookup_path(t->image, m.path, &e) ?: image_source(t->image, e, &below);
	if (r == 0 && (below != i->src.below || m.file_id != i->src.id))
		r = -EIO;
	return r ?: partial_mark_write(&t->style, fd, &m, false);
}

int partial_mark_fix(struct union_fs *t, struct inode *i, const struct stat *attributes)
{
	int fd, r;

	/* Skip a copy of another file on a rename: its mark states the path of its bytes. */
	if (i->type != DT_REG || !i->has_upper || (!i->lower && !attributes))
		return 0;
	/* Lock, so that a mark that was just removed does not come back. */
	WRLOCK_SCOPE(&i->lock);
	if (!i->src.id)
		return 0;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	r = i->lower ? fix_origin(t, i, fd, attributes,
				  xattr_get(fd, "", "system.posix_acl_access", NULL, 0) > 0)
		     : fix_copy(t, i, fd);
	fd_cache_unpin(&i->src.fd);
	return r < 0 ? r : 0;
}
