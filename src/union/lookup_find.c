// SPDX-License-Identifier: Apache-2.0
/* Finds the entry at a name in upper or image, and interprets its attributes. */
#include "lookup-internal.h"

#include "metacopy_import.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/metacopy_origin.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/saved_attrs.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

int lookup_state(struct union_fs *t, struct inode *dir, const char *name, struct lookup_state *ret)
{
	int r;

	*ret = (struct lookup_state){ .where = LOOKUP_NOWHERE };
	if (whiteout_name_kind(name) != WHITEOUT_PLAIN)
		return 0;
	if (dir->lower) {
		r = image_lookup(t->image, dir->lower, name, &ret->below);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0)
			ret->where = LOOKUP_LOWER;
	}
	if (dir->has_upper) {
		struct upper_dir *d;

		r = upper_listing(t, dir, &d);
		if (r < 0)
			return r;
		if (upper_dir_find(d, name, &ret->up)) {
			ret->is_whiteout = ret->up.is_whiteout;
			ret->where = ret->is_whiteout ? LOOKUP_NOWHERE : LOOKUP_UPPER;
		}
	}
	return 0;
}

/* Log a line about an upper entry, with its full path. */
static void log_name(struct union_fs *t, struct inode *dir, const char *name, const char *what)
{
	_cleanup_(freep) char *path = inode_name_path(t, dir, name);

	log_error("%s: %s: %s", t->upper->path, path ? path : name, what);
}

static int find_by_path(struct union_fs *t, const char *path, struct image_entry **ret)
{
	int r = image_lookup_path(t->image, path, ret);

	return r == -ENOTDIR ? -ENOENT : r;
}

/* Follow a redirect: a path in the lower layers, or a name in the lower directory of dir. */
static int find_redirected(struct union_fs *t, struct inode *dir, const char *redirect,
			   struct image_entry **ret)
{
	if (redirect[0] == '/')
		return find_by_path(t, redirect + 1, ret);
	return dir->lower ? image_lookup(t->image, dir->lower, redirect, ret) : -ENOENT;
}

/* Find the lower directory that an upper one is merged with: the entry below its name, none, or the
 * target of its redirect. */
static int find_merged(struct union_fs *t, struct inode *dir, int dirfd, const char *name,
		       struct image_entry *below, struct image_entry **ret)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char redirect[PATH_MAX];
	struct stat st;
	int r;

	*ret = NULL;
	if (fd < 0)
		return -errno;
	if (below && fstatat(fd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = whiteout_dir_kind(fd, t->upper->is_doubted, redirect);
	if (r == WHITEOUT_DIR_MERGED)
		*ret = below && below->type == DT_DIR ? below : NULL;
	if (r != WHITEOUT_DIR_REDIRECTED ||
	    fstatat(fd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return r < 0 ? r : 0;
	r = find_redirected(t, dir, redirect, ret);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == -ENOENT || (*ret)->type != DT_DIR) {
		log_name(t, dir, name,
			 "no lower layer has the directory that it was before it was renamed");
		return -EIO;
	}
	return 0;
}

/* Find the lower file of a partial upper file. */
static int find_base(struct union_fs *t, struct inode *dir, const char *name,
		     const struct partial_xattr *m, struct image_entry **ret)
{
	if (*m->path)
		return find_by_path(t, m->path, ret);
	return dir->lower ? image_lookup(t->image, dir->lower, name, ret) : -ENOENT;
}

int lookup_base(struct union_fs *t, int fd, const struct partial_xattr *m, struct image_entry *base,
		const char *path, struct inode_found *f)
{
	struct stat st;
	int r = image_stat(t->image, base, &st);

	if (r == 0 && (uint32_t)mapfile_uuid(t->map) != m->uuid_low)
		r = -ENOENT;
	if (r == 0 && !source_fits_mark(m, &st, path, t->upper->path))
		r = -EUCLEAN;
	if (r == 0)
		r = xattr_trust_check(t->upper, t->map, fd, m, &st);
	if (r == 0)
		r = image_source(t->image, base, &f->below);
	if (r < 0)
		return r;
	f->map = t->map;
	f->id = m->file_id;
	f->lower = m->is_copy ? NULL : base;
	return 0;
}

static bool fits(struct union_fs *t, struct inode *dir, const char *name,
		 const struct partial_xattr *m, const struct stat *st)
{
	_cleanup_(freep) char *path = inode_name_path(t, dir, name);

	return source_fits_mark(m, st, path ? path : name, t->upper->path);
}

/* Check by one descriptor and its current mark: each call by name may reach another file. */
static int doubt_partial(struct union_fs *t, int dirfd, const char *name,
			 const struct partial_xattr *m, const struct stat *low, uint64_t ino)
{
	_cleanup_(closep) int fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	struct partial_xattr now;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd == -ENOENT ? -ESTALE : fd < 0 ? fd : -errno;
	r = source_read_mark(fd, "", &now, NULL);
	if (r < 0)
		return r;
	if (r == 0 || st.st_ino != ino || now.file_id != m->file_id ||
	    strcmp(now.path, m->path) != 0)
		return -ESTALE;
	return xattr_trust_check(t->upper, t->map, fd, &now, low);
}

/* The inode number is the lower file's, unless the file is a copy: a copy is a file of its own. */
static void take_number(struct union_fs *t, const struct partial_xattr *m, struct image_entry *base,
			struct inode_found *f)
{
	if (m->is_copy)
		return;
	f->lower = base;
	f->ino = image_ino(t->image, base);
}

/* No byte of the lower file is visible. If base is the file of the mark, it still gives the
 * number. */
static void resolve_complete(struct union_fs *t, const struct partial_xattr *m,
			     struct image_entry *base, struct inode_found *f)
{
	f->map = t->map;
	f->id = m->file_id;
	if (!base)
		return;
	take_number(t, m, base, f);
	if (image_source(t->image, base, &f->below) < 0)
		f->below = NULL;
}

/* An entry of a directory whose upper half is fd. */
struct place {
	struct inode *dir;
	int fd;
	const char *name;
};

/* size: of the upper file. */
static int resolve_partial(struct union_fs *t, const struct place *p, const struct partial_xattr *m,
			   uint64_t size, struct inode_found *f)
{
	struct image_entry *base = NULL;
	struct stat st;
	uint64_t clip;
	int r = find_base(t, p->dir, p->name, m, &base), doubt = 0;

	if (r == 0 && base->type != DT_REG) {
		base = NULL;
		r = -ENOENT;
	}
	if (r == 0)
		r = image_stat(t->image, base, &st);
	if (r == 0 && t->upper->is_doubted)
		doubt = doubt_partial(t, p->fd, p->name, m, &st, f->upper_ino);
	if (doubt < 0 && doubt != -EUCLEAN)
		return doubt;
	if (source_needs_lower(t->map, m, size) == 0) {
		resolve_complete(
			t, m, r == 0 && doubt == 0 && partial_xattr_fits(m, &st) ? base : NULL, f);
		return 0;
	}
	if (doubt < 0)
		log_name(t, p->dir, p->name, XATTR_TRUST_SAID);
	if (doubt < 0 || (r == 0 && !fits(t, p->dir, p->name, m, &st)))
		return -EUCLEAN;
	if (r == 0)
		r = mapfile_clip(t->map, m->file_id, &clip);
	if (r == -ENOENT && base) {
		_cleanup_(closep) int fd =
			path_open(p->fd, p->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

		r = map_recover_enter(t->upper, t->map, m, fd);
	}
	if (r == 0 && (uint32_t)mapfile_uuid(t->map) != m->uuid_low)
		r = -ENOENT;
	if (r == 0)
		r = image_source(t->image, base, &f->below);
	if (r == -ENOENT)
		log_name(t, p->dir, p->name,
			 "a partial file without its map entry or its lower file");
	if (r < 0)
		return r == -ENOENT ? -EUCLEAN : r;
	f->map = t->map;
	f->id = m->file_id;
	take_number(t, m, base, f);
	return 0;
}

/* A whole copy shows the inode number of its lower file. */
static int find_origin(struct union_fs *t, int dirfd, const char *name, struct inode_found *f)
{
	char path[PATH_MAX];
	struct image_entry *e;
	int r = origin_xattr_read(dirfd, name, t->upper->is_doubted, path);

	if (r == 1 && image_lookup_path(t->image, path, &e) == 0 && e->type == f->type)
		f->ino = image_ino(t->image, e);
	return r == -EACCES ? r : 0;
}

/* Make a partial file of a metacopy that kernel overlayfs wrote. 1: done; 0: the file is no
 * metacopy. */
static int take_over(struct union_fs *t, struct inode *dir, int dirfd, const char *name)
{
	char origin[PATH_MAX];
	struct image_entry *base;
	int r = metacopy_origin_read(dirfd, name, origin);

	if (r != 1)
		return r;
	r = find_redirected(t, dir, *origin ? origin : name, &base);
	if (r == 0 && base->type != DT_REG)
		r = -ENOENT;
	if (r == 0)
		r = metacopy_import(t, dirfd, name, base);
	if (r == -ENOENT)
		log_name(t, dir, name, "a metacopy without its lower file");
	return r == -ENOENT ? -EUCLEAN : r < 0 ? r : 1;
}

/* A server that was killed while it materialized the file left other times. */
static void put_back_kept(int dirfd, const char *name, struct stat *st)
{
	_cleanup_(closep) int fd = -1;

	if (!saved_attrs_is_there(dirfd, name))
		return;
	fd = path_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd >= 0 && saved_attrs_recover(fd) == 1)
		fstat(fd, st);
}

static int resolve_regular(struct union_fs *t, const struct place *p, struct inode_found *f,
			   struct stat *st)
{
	struct partial_xattr mark;
	bool is_unresolved;
	int r = source_read_mark(p->fd, p->name, &mark, &is_unresolved);

	if (!is_unresolved && r >= 0)
		put_back_kept(p->fd, p->name, st);
	if (r == -EUCLEAN && take_over(t, p->dir, p->fd, p->name) == 1)
		r = source_read_mark(p->fd, p->name, &mark, &is_unresolved);
	if (r == 0 && !is_unresolved)
		r = find_origin(t, p->fd, p->name, f);
	else if (r == 1)
		r = resolve_partial(t, p, &mark, (uint64_t)st->st_size, f);
	else if (r == -EUCLEAN)
		log_name(t, p->dir, p->name, "damaged or foreign mark of a partial file");
	/* The name and attributes stay visible; reading the bytes is EIO. */
	f->is_damaged = r == -EUCLEAN;
	return r < 0 && r != -EUCLEAN ? r : 0;
}
static int resolve_in(struct union_fs *t, const struct place *p, struct image_entry *below,
		      struct inode_found *f, struct stat *st)
{
	int r = 0;

	if (fstatat(p->fd, p->name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*f = (struct inode_found){
		.type = IFTODT(st->st_mode),
		.has_upper = true,
		.upper_ino = st->st_ino,
		.upper_dev = inode_upper_dev(t, st->st_dev),
		.ino = inode_fold_ino(t, st->st_dev, st->st_ino),
	};
	if (f->type == DT_DIR) {
		r = find_merged(t, p->dir, p->fd, p->name, below, &f->lower);
		if (r == 0 && f->lower)
			f->ino = image_ino(t->image, f->lower);
		else if (r == -EUCLEAN)
			log_name(t, p->dir, p->name,
				 "its redirect is no path, or its owner could have forged it");
	} else if (f->type == DT_REG) {
		r = resolve_regular(t, p, f, st);
	} else {
		find_origin(t, p->fd, p->name, f);
	}
	return r < 0 ? r : 0;
}

int lookup_find_upper(struct union_fs *t, struct inode *dir, const char *name,
		      struct image_entry *below, struct inode_found *f, struct stat *st)
{
	const int fd = upper_pin(t, dir);
	const struct place p = { dir, fd < 0 ? fd : upper_dirfd(t, dir, fd, name), name };
	int r;

	if (fd < 0)
		return fd;
	r = resolve_in(t, &p, below, f, st);
	if (r == -EACCES) {
		/* The mode denies the server access to the entry's attributes, too. */
		_cleanup_(mode_relax_endp) struct mode_relax *x = mode_relax_begin(p.fd, name);

		r = x ? resolve_in(t, &p, below, f, st) : r;
	}
	fd_cache_unpin(&dir->src.fd);
	return r;
}

static int resolve_lower(struct union_fs *t, struct image_entry *below, struct inode_found *f)
{
	struct stat st;
	int r = 0;

	*f = (struct inode_found){ .type = below->type,
				   .lower = below,
				   .ino = image_ino(t->image, below) };
	if (below->type != DT_DIR)
		r = image_stat(t->image, below, &st);
	f->is_linked_below = r == 0 && below->type != DT_DIR && st.st_nlink > 1;
	return r;
}

/* Check the name first: a rename changes the version before it removes the name. */
static bool has_changed(struct union_fs *t, struct inode *dir, const char *name, uint64_t version)
{
	bool is_known = false;
	struct inode *i;

	if (inode_peek(t, dir, name, &i)) {
		is_known = i->stage == INODE_RESOLVED;
		inode_unref(t, i);
	}
	return is_known || inode_dir_version(dir) != version;
}

int lookup_find(struct union_fs *t, struct inode *dir, const char *name, struct inode_found *ret)
{
	struct lookup_state state;
	struct upper_dir *d;
	struct stat st;
	uint64_t version;
	int r = dir->has_upper ? upper_listing(t, dir, &d) : 0;

	version = inode_dir_version(dir);
	if (r == 0)
		r = lookup_state(t, dir, name, &state);
	if (r < 0)
		return r;
	if (state.where == LOOKUP_NOWHERE)
		return -ENOENT;
	if (state.where == LOOKUP_UPPER)
		r = lookup_find_upper(t, dir, name, state.below, ret, &st);
	else
		r = resolve_lower(t, state.below, ret);
	if (r < 0)
		return has_changed(t, dir, name, version) ? -EAGAIN : r;
	ret->dir_version = version;
	if (inode_count_unresolved(t) && ret->has_upper && state.below &&
	    state.below->type == ret->type)
		ret->covered_ino = image_ino(t->image, state.below);
	return 0;
}
