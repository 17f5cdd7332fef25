// SPDX-License-Identifier: Apache-2.0
/* Every copy is made without a name, or under a name in the work directory, and then placed in one
 * step. A server that dies before leaves nothing at the file's name, and the next server makes the
 * copy again (doc/internals/copy-up.md has the steps). publish_recover gives a placed copy its
 * missing names. */
#include "veneer/data/copyup.h"

#include "staged_copy.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/stats.h"
#include "veneer/data/publish.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

/* The place of the copy: one name, all names of a hard-linked file, or none if parent and names are
 * NULL. */
struct target {
	struct inode *parent;
	const char *name;
	const struct hardlink_set *names;
};

static int show_copy(struct union_fs *t, struct inode *i, const struct target *to,
		     struct staged_copy *f)
{
	if (to->names) {
		int r = publish_all(t, i, f->fd, f->temp, to->names);

		/* The name is of an earlier copy that failed and could not be taken back: the next
		 * mount gives that one its other names. */
		return r == -EEXIST ? -EIO : r;
	}
	if (to->parent)
		return publish_one(t, i, f->fd, f->temp, to->parent, to->name);
	if (*f->temp && unlinkat(t->workfd, f->temp, i->type == DT_DIR ? AT_REMOVEDIR : 0) < 0)
		return -errno;
	return 0;
}

/* Under i->lock. */
static int copy_claimed(struct union_fs *t, struct inode *i, struct copyup_change *change,
			const struct target *to)
{
	const bool is_nameless = !to->parent && !to->names;
	/* With several names the file's own path is ambiguous, and recovery must find the lower
	 * file: its mark states the path. */
	struct staged_copy f = { .fd = -1,
				 .has_path = i->type == DT_REG &&
					     (to->names || (change && change->moves)),
				 .is_nameless = is_nameless };
	int r = is_nameless ? upper_take_share(t) : 0;

	if (r < 0)
		return r;
	r = staged_copy_make(t, i, change, &f);
	if (r == 0 && i->type == DT_DIR) {
		r = upper_listing_empty(i, xattr_get(f.fd, "", UPPER_DEFAULT_ACL, NULL, 0) > 0);
	}
	/* The other names may be looked up as soon as they exist. */
	if (r == 0 && to->names)
		inode_expect_upper(t, i, f.st.st_ino);
	if (r == 0)
		r = show_copy(t, i, to, &f);
	if (r < 0) {
		if (to->names)
			inode_expect_upper(t, i, 0);
		if (staged_copy_discard(t, &f, i->type == DT_DIR) && i->src.id)
			mapfile_file_gone(t->map, i->src.id);
		i->src.id = 0;
		i->src.below = NULL;
		if (change)
			change->is_done = false;
		if (is_nameless)
			fd_cache_unhold(&t->held);
		return r;
	}
	quota_note(t->quota, f.fd);
	if (!is_nameless) {
		upper_install(t, i, steal_fd(&f.fd));
	} else {
		/* without a name it cannot be opened again */
		upper_hold_fresh(t, i, steal_fd(&f.fd));
		inode_note_gone(t, i);
	}
	inode_set_upper(t, i, f.st.st_ino);
	if (change)
		change->is_marked = f.has_path && i->src.id;
	stats_add(STATS_COPYUPS, 1);
	stats_add(STATS_WHOLE_BYTES, f.whole_bytes);
	return 0;
}

/* Directories are exempt: otherwise their entries could not be removed, and the lower layers limit
 * their number. *ret: bytes; *ret_n: inodes. */
static int claim_room(struct union_fs *t, struct inode *i, const struct copyup_change *change,
		      uint64_t *ret, uint64_t *ret_n)
{
	struct stat st;
	int r;

	*ret = *ret_n = 0;
	if (!t->quota || i->type == DT_DIR || (change && change->is_let_through))
		return 0;
	*ret_n = 1;
	r = image_stat(t->image, i->lower, &st);
	if (r == 0 && i->type == DT_REG && !(change && change->is_emptied) &&
	    (t->copies_whole ||
	     (st.st_size <= (off_t)COPYUP_WHOLE_MAX && !(change && change->keeps_content))))
		*ret = ((uint64_t)st.st_size + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
	return r < 0 ? r : quota_claim(t->quota, *ret, *ret_n);
}

static void note_touched(struct union_fs *t, struct inode *i, const struct target *to)
{
	if (!t->on_touched)
		return;
	t->on_touched(t, i);
	if (to->parent)
		t->on_touched(t, to->parent);
	for (size_t k = 0; to->names && k < to->names->n; k++)
		t->on_touched(t, to->names->v[k].dir);
}

/* Under i->lock. */
static int copy_locked(struct union_fs *t, struct inode *i, struct copyup_change *change,
		       const struct target *to)
{
	uint64_t room, n;
	int r = claim_room(t, i, change, &room, &n);

	if (r < 0)
		return r;
	r = copy_claimed(t, i, change, to);
	if (r == 0)
		note_touched(t, i, to);
	quota_settle(t->quota, -1, room, n);
	return r;
}

/* Copy up one file whose directory has an upper entry, or that has no directory. -EAGAIN: the
 * directory has no upper entry any more. */
static int copyup_one(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	char name[NAME_MAX + 1];
	struct target to = { .name = name };
	int r = 0;

	/* Unlinking or renaming a lower entry takes this lock too, so the name stays. */
	WRLOCK_SCOPE(&i->lock);
	if (i->has_upper)
		return 0;
	if (inode_any_name(t, i, &to.parent, name) < 0)
		to.parent = NULL;
	if (to.parent && !to.parent->has_upper)
		r = -EAGAIN;
	else
		r = copy_locked(t, i, change, &to);
	if (to.parent)
		inode_unref(t, to.parent);
	return r;
}

/* The topmost directory above i without an upper entry, or i itself; referenced. A loop instead of
 * recursion: the image decides the depth. */
static struct inode *topmost_lower(struct union_fs *t, struct inode *i)
{
	char name[NAME_MAX + 1];
	struct inode *parent;

	inode_ref(t, i);
	while (inode_any_name(t, i, &parent, name) == 0) {
		if (parent->has_upper) {
			inode_unref(t, parent);
			break;
		}
		inode_unref(t, i);
		i = parent;
	}
	return i;
}

static int copyup_single(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	for (;;) {
		struct inode *top = topmost_lower(t, i);
		bool is_last = top == i;
		int r = copyup_one(t, top, is_last ? change : NULL);

		inode_unref(t, top);
		if (r != -EAGAIN && (r < 0 || is_last))
			return r;
	}
}

static int copyup_dirs(struct union_fs *t, const struct hardlink_set *names)
{
	int r = 0;

	for (size_t k = 0; k < names->n && r == 0; k++)
		if (!names->v[k].dir->has_upper)
			r = copyup_single(t, names->v[k].dir, NULL);
	return r;
}

/* Called when the directories of all names have upper entries. -EAGAIN: a name has appeared in a
 * directory without one. */
static int copyup_names(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	struct hardlink_set names;
	int r;

	/* While this lock is held no name can vanish or appear: the operations that do so copy up
	 * first. */
	WRLOCK_SCOPE(&i->lock);
	if (i->has_upper)
		return 0;
	r = hardlink_index_find(t, i->lower, &names);
	/* Only a file without a name gets a nameless copy. */
	if (r == 0 && names.n == 0 && !inode_is_orphan(i))
		r = -EAGAIN;
	for (size_t k = 0; k < names.n && r == 0; k++)
		if (!names.v[k].dir->has_upper)
			r = -EAGAIN;
	if (r == 0)
		r = copy_locked(t, i, change, &(struct target){ .names = names.n ? &names : NULL });
	hardlink_index_set_release(t, &names);
	return r;
}

/* All names of a hard-linked lower file get their upper entries together, so that readers of the
 * raw upper see one file. */
static int copyup_linked(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	for (;;) {
		struct hardlink_set names;
		int r = hardlink_index_find(t, i->lower, &names);
		bool has_none = names.n == 0;

		if (r == 0)
			r = copyup_dirs(t, &names);
		hardlink_index_set_release(t, &names);
		if (r == 0)
			r = has_none ? copyup_single(t, i, change) : copyup_names(t, i, change);
		if (r != -EAGAIN)
			return r;
	}
}

int copyup_inode(struct union_fs *t, struct inode *i, struct copyup_change *change)
{
	if (i->has_upper)
		return 0;
	if (!t->upper)
		return -EROFS;
	return i->is_linked_below ? copyup_linked(t, i, change) : copyup_single(t, i, change);
}

int copyup_settle_links(struct union_fs *t, struct inode *i)
{
	struct hardlink_set names;
	bool has_others;
	int r;

	if (!i->is_linked_below || i->has_upper)
		return 0;
	r = hardlink_index_find(t, i->lower, &names);
	has_others = names.n > 1;
	hardlink_index_set_release(t, &names);
	if (r < 0 || !has_others)
		return r;
	r = copyup_inode(t, i, NULL);
	/* If the quota has no room for a copy, make one without content: one inode, whose number
	 * the lower layers limit. With copies_whole that could be gigabytes. */
	if (r == -ENOSPC && t->quota && !t->copies_whole)
		r = copyup_inode(
			t, i,
			&(struct copyup_change){ .keeps_content = true, .is_let_through = true });
	return r;
}

int copyup_nameless(struct union_fs *t, struct inode *i, int *ret_fd)
{
	struct staged_copy f = { .fd = -1, .is_nameless = true };
	int r = staged_copy_as_shown(t, i, &f);

	if (r < 0) {
		staged_copy_discard(t, &f, false);
		return r;
	}
	*ret_fd = f.fd;
	return 0;
}
