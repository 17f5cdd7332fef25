// SPDX-License-Identifier: Apache-2.0
/* The steps come in this order, so that after a kill or a power cut at any moment the layer shows
 * the same:
 * 1. Walk every directory of the upper, its contents before itself. Partial files get all of their
 *    blocks, and origins are removed. Redirected directories and their merged subdirectories get
 *    whole copies from below.
 * 2. Sync; remove the marks of the files that are complete.
 * 3. Sync; make the redirected directories opaque, which overrules their redirects.
 * 4. Sync; remove whiteouts in them, which hide nothing any more, and then the redirects. As long
 *    as a redirect is there, a later run knows that it is at this step.
 * 5. Sync; remove the map, if nothing left needs it.
 *
 * A directory with an entry that stays unchanged keeps its redirect, because the entry may need
 * it. */
#include "veneer/tools/flatten.h"

#include "layer_walk.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/data/copyup.h"
#include "veneer/data/materialize.h"
#include "veneer/jobs/upper_walk.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/saved_attrs.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* A directory that is being walked. */
struct level {
	bool is_filled; /* its lower entries are copied */
	bool is_redirected;
	bool has_left; /* an entry in it stays unchanged */
};

struct inode_list {
	struct inode **v;
	size_t n, cap;
};

struct flatten {
	struct union_fs *t;
	struct level *levels;
	size_t depth, cap;
	struct materialize whole;
	struct inode_list files, dirs; /* done except for their mark or redirect; referenced */
	void (*step)(void *arg, const struct flatten_stats *s);
	void *arg;
	struct flatten_stats s;
};

static void forget(struct flatten *f, struct inode *i)
{
	if (i != f->t->root)
		inode_unref(f->t, i);
}

static int remember(struct flatten *f, struct inode_list *l, struct inode *i)
{
	if (array_reserve(&l->v, &l->cap, l->n + 1) < 0)
		return -ENOMEM;
	if (i != f->t->root)
		inode_ref(f->t, i);
	l->v[l->n++] = i;
	return 0;
}

static void list_release(struct flatten *f, struct inode_list *l)
{
	while (l->n)
		forget(f, l->v[--l->n]);
	free(l->v);
}

static void tell(struct flatten *f)
{
	if (f->step)
		f->step(f->arg, &f->s);
}

/* An error of the machine and not of one file: stop. */
static bool is_fatal(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EROFS || r == -EMFILE ||
	       r == -ENFILE;
}

/* Skip the entry and count it. Returns 0, or r if it is fatal. */
static int leave_as_it_is(struct flatten *f, struct inode *dir, const char *name, const char *what,
			  int r)
{
	_cleanup_(freep) char *path = inode_name_path(f->t, dir, name);

	if (is_fatal(r))
		return r;
	log_error("%s/%s: %s: %s", f->t->upper->path, path ? path : name, what, strerror(-r));
	f->s.left++;
	for (size_t k = 0; k < f->depth; k++)
		f->levels[k].has_left = true;
	return 0;
}

/* ---- 1: copy all visible data into the upper ---- */

static int copy_entry(struct flatten *f, struct inode *dir, const char *name)
{
	struct lookup_state state;
	struct inode *i;
	struct stat st;
	int r = lookup_state(f->t, dir, name, &state);

	if (r < 0 || state.where != LOOKUP_LOWER)
		return r;
	r = lookup_name(f->t, dir, name, &i, &st);
	if (r < 0)
		return r;
	r = copyup_inode(f->t, i, NULL);
	forget(f, i);
	if (r == 0)
		f->s.copied++;
	tell(f);
	return r;
}

static int copy_missing(struct flatten *f, struct inode *dir)
{
	ssize_t n = image_count(f->t->image, inode_lower(dir));

	if (n < 0)
		return leave_as_it_is(f, dir, ".", "cannot list the lower directory", (int)n);
	for (ssize_t k = 0; k < n; k++) {
		const char *name = image_child(inode_lower(dir), (size_t)k)->name;
		int r = copy_entry(f, dir, name);

		if (r < 0)
			r = leave_as_it_is(f, dir, name, "cannot copy the lower entry", r);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_all(struct flatten *f, struct inode *dir, bool is_filled)
{
	int fd = upper_pin(f->t, dir), r;
	struct mode_relax *x;
	struct saved_attrs k;

	if (fd < 0)
		return fd;
	x = mode_relax_begin(fd, "");
	r = is_filled ? saved_attrs_take(fd, &k) : saved_attrs_recover(fd);
	if (r == 0 && is_filled) {
		int e;

		r = copy_missing(f, dir);
		e = saved_attrs_put_back(fd, &k);
		r = r ?: e;
	}
	mode_relax_end(x);
	upper_unpin(dir);
	return r < 0 ? r : 0;
}

static int push(struct flatten *f, bool is_filled, bool is_redirected)
{
	if (array_reserve(&f->levels, &f->cap, f->depth + 1) < 0)
		return -ENOMEM;
	f->levels[f->depth++] =
		(struct level){ .is_filled = is_filled, .is_redirected = is_redirected };
	return 0;
}

static int has_redirect(struct flatten *f, struct inode *dir)
{
	int fd = upper_pin(f->t, dir), r;

	if (fd < 0)
		return fd;
	r = whiteout_has_redirect(fd);
	upper_unpin(dir);
	return r;
}

static void count_copied(void *arg, uint64_t n)
{
	struct flatten *f = arg;

	f->s.bytes += n;
	tell(f);
}

/* Remove the origin, which another union file system would show to its users. */
static int drop_origin(struct flatten *f, struct inode *dir, const char *name)
{
	static const char *const attrs[] = { ORIGIN_XATTR_TRUSTED_ATTR, ORIGIN_XATTR_USER_ATTR,
					     SNAPSHOT_NUMBER_ATTR, SNAPSHOT_NUMBER_USER_ATTR };
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	int fd = upper_pin(f->t, dir), r = 0;

	if (fd < 0)
		return fd;
	for (size_t k = 0; r == 0 && k < sizeof(attrs) / sizeof(*attrs); k++) {
		r = xattr_remove(fd, name, attrs[k]);
		if (r == -EACCES && !x && (x = mode_relax_begin(fd, name)))
			r = xattr_remove(fd, name, attrs[k]);
		if (r == -ENODATA || r == -EOPNOTSUPP || r == -EPERM)
			r = 0;
	}
	upper_unpin(dir);
	return r;
}

static int visit_file(struct flatten *f, struct inode *dir, const char *name, struct inode *i)
{
	int r;

	if (inode_is_damaged(i))
		return leave_as_it_is(f, dir, name, "left as it is", -EIO);
	if (!inode_partial_id(i))
		return 0;
	r = materialize_fill_file(&f->whole, i);
	f->s.files++;
	tell(f);
	return r < 0 ? leave_as_it_is(f, dir, name, "left as it is", r) : remember(f, &f->files, i);
}

static int visit(void *arg, struct inode *dir, const char *name, struct inode *i)
{
	struct flatten *f = arg;
	int r = drop_origin(f, dir, name);

	if (r < 0)
		return leave_as_it_is(f, dir, name, "left as it is", r);
	return inode_is_regular(i) ? visit_file(f, dir, name, i) : 0;
}

static int miss(void *arg, struct inode *dir, const char *name, int error)
{
	return leave_as_it_is(arg, dir, name, "left as it is", error);
}

static int enter(void *arg, struct inode *parent, const char *name, struct inode *dir)
{
	struct flatten *f = arg;
	const struct level *above = f->depth ? &f->levels[f->depth - 1] : NULL;
	int is_redirected, r;

	/* The caller prepared the root, and restores its times. */
	if (!above)
		return push(f, false, false) ?: 1;
	is_redirected = drop_origin(f, parent, name) ?: has_redirect(f, dir);
	if (is_redirected < 0)
		return leave_as_it_is(f, parent, name, "left as it is", is_redirected);
	r = push(f, inode_lower(dir) && (is_redirected || above->is_filled), is_redirected);
	r = r ?: copy_all(f, dir, f->levels[f->depth - 1].is_filled);
	return r ?: 1;
}

static int leave(void *arg, struct inode *dir)
{
	struct flatten *f = arg;
	struct level *l = &f->levels[--f->depth];

	return l->is_redirected && !l->has_left ? remember(f, &f->dirs, dir) : 0;
}

static int go_through(struct flatten *f)
{
	static const struct upper_walk_hooks hooks = {
		.enter = enter, .leave = leave, .entry = visit, .miss = miss
	};

	return upper_walk(f->t, &hooks, f);
}

/* ---- 2 to 5: remove marks, redirects and the map ---- */

static int sync_all(struct flatten *f)
{
	return f->t->is_volatile || syncfs(f->t->upper->rootfd) == 0 ? 0 : -errno;
}

static int finish_files(struct flatten *f)
{
	for (size_t k = 0; k < f->files.n; k++) {
		int r = materialize_finish(&f->whole, f->files.v[k]);

		if (r < 0)
			return r;
	}
	return 0;
}

static int make_opaque(struct flatten *f, struct inode *dir)
{
	int fd = upper_pin(f->t, dir), r;
	struct mode_relax *x;
	struct saved_attrs k;

	if (fd < 0)
		return fd;
	x = mode_relax_begin(fd, "");
	r = saved_attrs_take(fd, &k);
	if (r == 0) {
		int e;

		r = whiteout_set_opaque(&f->t->style, fd);
		e = saved_attrs_put_back(fd, &k);
		r = r ?: e;
	}
	mode_relax_end(x);
	upper_unpin(dir);
	return r;
}

static int drop_whiteout(void *arg, const struct layer_walk_entry *e, void **ret_dir)
{
	struct stat other;
	struct saved_attrs k;
	int r, back;

	(void)arg;
	(void)ret_dir;
	/* A ".wh.NAME" beside an entry NAME still hides that. */
	if (!whiteout_is_device(e->st.st_mode, e->st.st_rdev) &&
	    (whiteout_name_kind(e->name) != WHITEOUT_HIDES || S_ISDIR(e->st.st_mode) ||
	     fstatat(e->dirfd, e->name + WHITEOUT_PREFIX_LEN, &other, AT_SYMLINK_NOFOLLOW) == 0))
		return 0;
	r = saved_attrs_take(e->dirfd, &k);
	if (r < 0)
		return r;
	r = unlinkat(e->dirfd, e->name, 0) < 0 ? -errno : 0;
	back = saved_attrs_put_back(e->dirfd, &k);
	return r ?: back;
}

static int drop_redirect(struct flatten *f, struct inode *dir)
{
	int fd = upper_pin(f->t, dir), r;
	struct mode_relax *x;

	if (fd < 0)
		return fd;
	x = mode_relax_begin(fd, "");
	r = layer_walk(fd, NULL, &(struct layer_walk_hooks){ .fn = drop_whiteout });
	r = r ?: whiteout_remove_redirect(fd);
	mode_relax_end(x);
	upper_unpin(dir);
	if (r == 0)
		f->s.dirs++;
	return r;
}

static int finish_dirs(struct flatten *f)
{
	int r = 0;

	for (size_t k = 0; r == 0 && k < f->dirs.n; k++)
		r = make_opaque(f, f->dirs.v[k]);
	r = r ?: sync_all(f);
	for (size_t k = 0; r == 0 && k < f->dirs.n; k++)
		r = drop_redirect(f, f->dirs.v[k]);
	return r;
}

/* Entries without a file may remain in the map: they mean nothing. */
static int remove_map(struct flatten *f)
{
	int rootfd = f->t->upper->rootfd, r;
	struct stat st;

	if (fstatat(rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	r = sync_all(f);
	if (r == 0 && unlinkat(rootfd, MAPFILE_NAME, 0) < 0)
		r = -errno;
	if (r == 0 && !f->t->is_volatile && fsync(rootfd) < 0)
		r = -errno;
	f->s.has_removed_map = r == 0;
	return r;
}

static void count_entry(void *arg, file_id_t id, const struct blkmap *map)
{
	struct flatten_stats *s = arg;
	uint64_t own = blkmap_count(map) << BLK_SHIFT, clip = blkmap_clip(map);

	(void)id;
	s->nfiles++;
	s->nbytes += clip > own ? clip - own : 0;
}

int flatten_tree(struct union_fs *t, void (*step)(void *arg, const struct flatten_stats *s),
		 void *arg, struct flatten_stats *ret)
{
	struct flatten f = { .t = t, .step = step, .arg = arg };
	int r = materialize_init(&f.whole, t, true);

	f.whole.copied = count_copied;
	f.whole.arg = &f;
	t->copies_whole = true;
	mapfile_each(t->map, count_entry, &f.s);
	r = r ?: go_through(&f);
	if (r == 0 && (f.files.n || f.dirs.n))
		r = sync_all(&f);
	r = r ?: finish_files(&f);
	if (r == 0 && f.dirs.n)
		r = sync_all(&f) ?: finish_dirs(&f);
	if (r == 0 && f.s.left == 0)
		r = remove_map(&f);
	list_release(&f, &f.files);
	list_release(&f, &f.dirs);
	free(f.levels);
	materialize_release(&f.whole);
	*ret = f.s;
	return r;
}
