// SPDX-License-Identifier: Apache-2.0
#include "lookup-internal.h"

#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/restore.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* -EAGAIN: the entry changed meanwhile. The kernel does not keep a name from changing during its
 * lookup: copy-up makes upper entries of a file's other names, and the search for these names looks
 * up directories. */
static int enter_name(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret)
{
	struct inode_found found;
	int r = lookup_find(t, dir, name, &found);

	/* The inode may have been known by another name when the last server died. */
	if (r == 0)
		r = restore_others(t, &found);
	return r < 0 ? r : inode_enter(t, dir, name, &found, ret);
}

/* Find the resolved inode of a known name. 1; 0: there is none (any more); -errno. */
static int known(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret)
{
	int r = 0;

	/* ESTALE: the inode once had this name, and has lost it now. */
	while (r == 0 || r == -ESTALE) {
		if (!inode_peek(t, dir, name, ret))
			return 0;
		r = lookup_restore(t, *ret);
		if (r == 0)
			return 1;
		inode_unref(t, *ret);
	}
	return r;
}

int lookup_name(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret,
		struct stat *ret_st)
{
	int r;

	do {
		r = known(t, dir, name, ret);
		if (r != 0)
			break;
		r = enter_name(t, dir, name, ret);
	} while (r == -EAGAIN);
	if (r < 0)
		return r;
	r = lookup_stat(t, *ret, ret_st);
	if (r < 0)
		inode_unref(t, *ret);
	return r;
}

int lookup_settle(struct union_fs *t, struct inode *dir, const char *name)
{
	struct inode *i;
	int r = inode_count_unresolved(t) ? known(t, dir, name, &i) : 0;

	if (r == 1)
		inode_unref(t, i);
	return r < 0 ? r : 0;
}

struct below {
	struct image *image;
	struct image_entry *dir;
};

static bool is_dir_below(void *arg, const char *name)
{
	const struct below *b = arg;
	struct image_entry *e;

	return image_lookup(b->image, b->dir, name, &e) == 0 && e->type == DT_DIR;
}

/* A directory of both upper and image: 2 plus the number of visible subdirectories. */
static int merged_nlink(struct union_fs *t, struct inode *i, nlink_t *ret)
{
	struct below below = { t->image, i->lower };
	ssize_t n = image_count(t->image, i->lower); /* loads it */
	struct upper_dir *d;
	int r;

	if (n < 0)
		return (int)n;
	r = upper_listing(t, i, &d);
	if (r < 0)
		return r;
	*ret = (nlink_t)(2 + (ssize_t)image_subdirs(i->lower) +
			 upper_dir_subdirs(d, is_dir_below, &below));
	return 0;
}

static int apply_override(struct union_fs *t, struct inode *i, struct stat *st)
{
	int fd = upper_pin(t, i);

	if (fd < 0)
		return fd;
	mode_xattr_apply(fd, "", t->upper->override, st);
	fd_cache_unpin(&i->src.fd);
	return 0;
}

/* Materializing changes a partial file's times for a moment, with the file locked
 * (materialize.h). */
static int stat_upper(struct union_fs *t, struct inode *i, struct stat *ret) UNCHECKED_LOCKS
{
	const bool is_partial = i->type == DT_REG && i->src.id;
	int r;

	if (is_partial)
		rwlock_rdlock(&i->lock);
	r = upper_stat(t, i, ret);
	if (is_partial)
		rwlock_unlock(&i->lock);
	return r;
}

/* A partial file occupies at least the blocks of the lower bytes that it shows. For a copy of
 * another file these all count as data: cp searches a file with fewer blocks than bytes for
 * holes. */
static void count_blocks_below(struct union_fs *t, struct inode *i, struct stat *st)
{
	blkcnt_t below = 0;
	struct stat lower;
	uint64_t clip;

	if (i->lower && image_stat(t->image, i->lower, &lower) == 0)
		below = st->st_size >= lower.st_size ? lower.st_blocks : 0;
	else if (!i->lower && i->src.below && mapfile_clip(i->src.map, i->src.id, &clip) == 0)
		below = (blkcnt_t)((MIN(clip, (uint64_t)st->st_size) + 511) / 512);
	st->st_blocks = MAX(st->st_blocks, below);
}

int lookup_stat(struct union_fs *t, struct inode *i, struct stat *ret)
{
	int r;

	if (i->has_upper) {
		r = stat_upper(t, i, ret);
		if (r == 0 && t->upper->override)
			r = apply_override(t, i, ret);
		if (r == 0 && i->type == DT_DIR && i->lower && !t->has_static_nlink &&
		    !inode_is_orphan(i))
			r = merged_nlink(t, i, &ret->st_nlink);
		if (r == 0 && i->type == DT_REG && i->src.id)
			count_blocks_below(t, i, ret);
	} else {
		r = image_stat(t->image, i->lower, ret);
		/* A lower inode without a name had no other visible name either. */
		if (r == 0 && inode_is_orphan(i))
			ret->st_nlink = 0;
	}
	if (r < 0)
		return r;
	if (t->has_static_nlink && i->type == DT_DIR)
		ret->st_nlink = 1;
	ret->st_ino = i->ino;
	return 0;
}

/* The shown inode number of an upper entry, for d_ino, equal to that of lookup_name. */
static int entry_ino(struct union_fs *t, struct inode *dir, const char *name,
		     const struct upper_dir_entry *e, struct image_entry *below, uint64_t *ret)
{
	struct inode_found f;
	struct inode *i;
	struct stat st;
	int r;

	if (e->is_ino_known) {
		*ret = e->ino;
		return 0;
	}
	if (inode_peek(t, dir, name, &i)) {
		*ret = i->ino;
		inode_unref(t, i);
		return 0;
	}
	/* A fault in one entry must not hide the entries after it. */
	r = lookup_find_upper(t, dir, name, below, &f, &st);
	*ret = r == 0 ? f.ino : inode_fold_ino(t, t->upper->dev, e->ino);
	return 0;
}

/* The next of the n lower names. */
static int next_lower(struct union_fs *t, struct inode *dir, size_t n, uint64_t *pos,
		      struct lookup_entry *ret)
{
	struct upper_dir *d = NULL;
	int r;

	if (dir->has_upper) {
		r = upper_listing(t, dir, &d);
		if (r < 0)
			return r;
	}
	for (size_t k = n ? image_at_place(dir->lower, *pos) : 0; k < n; k++) {
		struct image_entry *e = image_child(dir->lower, k);
		struct upper_dir_entry up;

		*pos = image_place(dir->lower, k);
		if (!d || !upper_dir_find(d, e->name, &up)) {
			ret->type = e->type;
			ret->ino = image_ino(t->image, e);
		} else if (up.is_whiteout) {
			continue;
		} else {
			ret->type = up.type;
			r = entry_ino(t, dir, e->name, &up, e, &ret->ino);
			if (r < 0)
				return r;
		}
		strcpy(ret->name, e->name);
		return 1;
	}
	return 0;
}

/* The next name that only the upper has, unless it is at or after *pos. first: the position of the
 * first such name. */
static int next_upper(struct union_fs *t, struct inode *dir, uint64_t first, uint64_t from,
		      uint64_t *pos, struct lookup_entry *ret)
{
	struct upper_dir_entry up;
	struct upper_dir *d;
	char name[NAME_MAX + 1];
	uint64_t seq = from > first ? from - first : 0;
	int r = upper_listing(t, dir, &d);

	if (r < 0)
		return r;
	if (!upper_dir_next(d, &seq, name, &up) || first + seq >= *pos)
		return 0;
	*pos = first + seq;
	strcpy(ret->name, name);
	ret->type = up.type;
	r = entry_ino(t, dir, ret->name, &up, NULL, &ret->ino);
	return r < 0 ? r : 1;
}

int lookup_next(struct union_fs *t, struct inode *dir, uint64_t *pos, struct lookup_entry *ret)
{
	const ssize_t n = dir->lower ? image_count(t->image, dir->lower) : 0;
	const uint64_t from = *pos;
	uint64_t first, next = from;
	int r, is_upper = 0;

	if (n < 0)
		return (int)n;
	first = dir->lower ? image_lower_places(dir->lower) : 0;
	r = next_lower(t, dir, (size_t)n, &next, ret);
	if (r < 0)
		return r;
	if (!r)
		next = UINT64_MAX;
	if (dir->has_upper && next >= first)
		is_upper = next_upper(t, dir, first, from, &next, ret);
	if (is_upper < 0)
		return is_upper;
	if (r || is_upper)
		*pos = next + 1;
	return r || is_upper;
}

int lookup_dir_is_empty(struct union_fs *t, struct inode *dir)
{
	struct lookup_entry e;
	uint64_t pos = 0;
	int r = lookup_next(t, dir, &pos, &e);

	return r < 0 ? r : !r;
}
