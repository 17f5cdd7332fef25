// SPDX-License-Identifier: Apache-2.0
/* State that a server leaves when it is killed after each step. replay_rename finishes from step 5
 * on; before it begins again.
 *
 * 1. Both directories and the source are copied up (copyup_inode).
 * 2. The source's mark gets a path. A directory gets a redirect to its present lower directory, or
 *    without one an opaque mark. Nothing changes by these.
 * 3. If the rename itself cannot make the whiteout for the old name, one is made beside it, hidden.
 *    The next rename of that name removes it.
 * 4. If ".wh.NAME" hides the target: the object that it hides is removed. A file is linked there,
 *    still hidden. A directory needs an empty one there, visible once the whiteout is removed: only
 *    a server can have made that one, as the kernel knows of none.
 * 5. Renamed; or exchanged with a whiteout, or with a directory that only looks empty, which is
 *    then visible at the old name; or ".wh.NAME" is removed, and the file has both names. If step 3
 *    was needed, the lower entry of the old name shows.
 * 6. The old name is hidden, and an object left there moved to the work directory: done.
 *
 * An exchange is one step. */
#include "veneer/data/rename.h"

#include "partial_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/data/copyup.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/hardlink_index.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define ATTR_SAFE_MAX 255 /* bytes */

/* One end of a rename: a name and its state. */
struct end {
	struct inode *dir;
	const char *name;
	struct lookup_state state;
	struct upper_dir *listing;
	struct inode *inode; /* referenced; NULL: no entry */
	int dirfd; /* pinned while >= 0 */
};

static int end_look(struct union_fs *t, struct end *e)
{
	int r = copyup_inode(t, e->dir, NULL);

	if (r == 0)
		r = upper_listing(t, e->dir, &e->listing);
	if (r == 0)
		r = lookup_settle(t, e->dir, e->name);
	if (r == 0)
		r = lookup_state(t, e->dir, e->name, &e->state);
	if (r < 0)
		return r;
	if (e->state.where != LOOKUP_NOWHERE && !inode_peek(t, e->dir, e->name, &e->inode)) {
		struct stat st;

		r = lookup_name(t, e->dir, e->name, &e->inode, &st);
		if (r < 0)
			return r;
	}
	e->dirfd = upper_pin(t, e->dir);
	return e->dirfd < 0 ? e->dirfd : 0;
}

static void end_release(struct union_fs *t, struct end *e)
{
	if (e->dirfd >= 0)
		fd_cache_unpin(&e->dir->src.fd);
	if (e->inode)
		inode_unref(t, e->inode);
}

/* Refuse a move whose origin cannot be written: EXDEV makes mv(1) copy. */
static int refuse_move(struct inode *i, int r)
{
	_cleanup_(freep) char *path = r == -ENOSPC ? image_path(i->lower) : NULL;

	/* ext4 returns ENOSPC for an attribute that does not fit beside the inode's others. */
	if (path && strlen(path) > ATTR_SAFE_MAX)
		r = -E2BIG;
	return r == -EOPNOTSUPP || r == -ENAMETOOLONG || r == -E2BIG || r == -ERANGE ? -EXDEV : r;
}

/* Record the original path in the directory: the lower directory merged into it does not move with
 * it. */
static int set_redirect(struct union_fs *t, struct inode *i, int fd)
{
	_cleanup_(freep) char *path = image_path(i->lower);

	if (!path)
		return -ENOMEM;
	return whiteout_set_redirect(&t->style, fd, path);
}

/* The opaque mark may be a file in the directory, which must not change its times. */
static int set_opaque(struct union_fs *t, int fd)
{
	struct timespec times[2];
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : whiteout_set_opaque(&t->style, fd);

	if (r < 0)
		return r;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	/* Proceed even if the times cannot be restored. */
	utimensat(fd, "", times, AT_EMPTY_PATH);
	return 0;
}

static int prepare_directory(struct union_fs *t, struct inode *i, const struct end *to)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	bool lies_over_dir = to->state.below && to->state.below->type == DT_DIR;
	int fd, r = 0;

	/* Programs that read the raw upper expect content and no redirects. */
	if (i->lower && (t->copies_whole || t->has_no_redirects))
		return -EXDEV;
	if (!i->lower && !lies_over_dir)
		return 0;
	r = copyup_inode(t, i, NULL);
	if (r < 0)
		return r;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	x = mode_relax_begin(fd, "");
	r = i->lower ? refuse_move(i, set_redirect(t, i, fd)) : set_opaque(t, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}

/* Prepare the inode of one end for its place at the other. */
static int prepare_move(struct union_fs *t, struct inode *i, const struct end *to)
{
	struct copyup_change change = { .keeps_content = true, .moves = true };
	int r;

	if (i->type == DT_DIR)
		return prepare_directory(t, i, to);
	r = copyup_inode(t, i, &change);
	if (r == 0 && !change.is_marked)
		r = partial_mark_fix(t, i, NULL);
	return i->lower ? refuse_move(i, r) : r;
}

static struct upper_dir_entry upent_of(const struct inode *i, const struct end *at)
{
	return (struct upper_dir_entry){ .ino = i->ino,
					 .type = i->type,
					 .is_ino_known = true,
					 .is_below = at->state.below != NULL };
}

/* Remove ".wh.NAME": the name is in use again. */
static int unhide(const struct end *e)
{
	char hidden[NAME_MAX + 1];

	if (!e->state.is_whiteout ||
	    snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", e->name) >= (int)sizeof(hidden))
		return 0;
	return unlinkat(e->dirfd, hidden, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* Hides the source's name if there is a lower entry: by the rename itself, or by a whiteout made
 * before under a reserved name of the same directory. That name is at least as long, so that
 * nothing can fail for lack of room once the file has moved. */
struct hiding {
	unsigned flags; /* RENAME_WHITEOUT or 0 */
	char temp[NAME_MAX + 1]; /* "" if none is needed */
};

static int hiding_prepare(struct union_fs *t, const struct end *from, struct hiding *h)
{
	int fd;

	*h = (struct hiding){ .flags = 0 };
	if (!from->state.below)
		return 0;
	if (t->style.has_device && t->style.has_rename) {
		h->flags = RENAME_WHITEOUT;
		return 0;
	}
	if (!t->style.has_device && strlen(from->name) + WHITEOUT_PREFIX_LEN > NAME_MAX)
		return -ENAMETOOLONG;
	remove_beside_name(from->name, h->temp);
	unlinkat(from->dirfd, h->temp, 0); /* a leftover of a killed server */
	if (t->style.has_device)
		return mknodat(from->dirfd, h->temp, S_IFCHR, 0) < 0 ? -errno : 0;
	fd = openat(from->dirfd, h->temp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC,
		    0700);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void hiding_abandon(const struct end *from, const struct hiding *h)
{
	if (*h->temp)
		unlinkat(from->dirfd, h->temp, 0);
}

static int hiding_finish(struct union_fs *t, const struct end *from, const struct hiding *h)
{
	char hidden[NAME_MAX + 1];
	const char *name = from->name;

	if (!*h->temp)
		return 0;
	if (!t->style.has_device) {
		if (snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", from->name) >=
		    (int)sizeof(hidden))
			return -ENAMETOOLONG;
		name = hidden;
	}
	return renameat2(from->dirfd, h->temp, from->dirfd, name, 0) < 0 ? -errno : 0;
}

static bool is_hidden_by_file(const struct end *e)
{
	return e->state.is_whiteout && whiteout_is_by_name(e->dirfd, e->name);
}

/* An exchange has moved the target's old directory or whiteout to the source's name. Remove it, and
 * hide the lower entry of the source's name, if any. */
static int dispose_exchanged(struct union_fs *t, const struct end *from, const struct hiding *h)
{
	char temp[32];
	struct stat st;
	int r;

	if (fstatat(from->dirfd, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (whiteout_is_device(st.st_mode, st.st_rdev)) {
		if (!from->state.below && unlinkat(from->dirfd, from->name, 0) < 0)
			return -errno;
		return 0;
	}
	upper_temp_name(t, temp);
	r = mode_relax_rename(from->dirfd, from->name, t->workfd, temp, h->flags);
	if (r == 0)
		remove_temp_dir(t, temp);
	return r;
}

/* A directory cannot have two names. First put an empty one where ".wh.NAME" hides it, remove the
 * whiteout, and then rename over it. A killed server leaves at most an empty directory. Any object
 * that ".wh.NAME" hides there is removed first. */
static int unhide_for_directory(struct union_fs *t, const struct end *to)
{
	_cleanup_(closep) int fd = -1;
	char temp[32];
	int r;

	if (!is_hidden_by_file(to))
		return 0;
	r = remove_unseen(t, to->dirfd, to->name);
	if (r < 0)
		return r;
	upper_temp_name(t, temp);
	if (mkdirat(t->workfd, temp, 0700) < 0)
		return -errno;
	fd = openat(t->workfd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : whiteout_set_opaque(&t->style, fd);
	if (r == 0 && renameat2(t->workfd, temp, to->dirfd, to->name, 0) < 0)
		r = -errno;
	if (r < 0)
		remove_temp_dir(t, temp);
	return r < 0 ? r : unhide(to);
}

static int move_directory(struct union_fs *t, const struct end *from, const struct end *to,
			  const struct hiding *h)
{
	int r = unhide_for_directory(t, to);

	if (r < 0)
		return r;
	r = mode_relax_rename(from->dirfd, from->name, to->dirfd, to->name, h->flags);
	if (r != -ENOTDIR && r != -ENOTEMPTY && r != -EEXIST)
		return r;
	r = mode_relax_rename(from->dirfd, from->name, to->dirfd, to->name, RENAME_EXCHANGE);
	if (r < 0)
		return r;
	r = dispose_exchanged(t, from, h);
	if (r < 0 &&
	    mode_relax_rename(from->dirfd, from->name, to->dirfd, to->name, RENAME_EXCHANGE) == 0)
		return r;
	return 0;
}

/* While ".wh.NAME" exists, a file that moves to NAME would be seen at neither name. So link it
 * there until the whiteout is removed. Any object that the whiteout hides, perhaps of an
 * interrupted attempt, is removed first. */
static int move_file_unhidden(struct union_fs *t, const struct end *from, const struct end *to,
			      const struct hiding *h)
{
	char temp[32];
	int r = remove_unseen(t, to->dirfd, to->name);

	if (r < 0)
		return r;
	if (linkat(from->dirfd, from->name, to->dirfd, to->name, 0) < 0)
		return -errno;
	r = unhide(to);
	if (r < 0) {
		unlinkat(to->dirfd, to->name, 0);
		return r;
	}
	upper_temp_name(t, temp);
	if (h->flags ? renameat2(from->dirfd, from->name, t->workfd, temp, h->flags) < 0
		     : !from->state.below && unlinkat(from->dirfd, from->name, 0) < 0)
		log_warn("%s: cannot remove the old name of %s: %s", t->upper->path, to->name,
			 strerror(errno));
	if (h->flags)
		unlinkat(t->workfd, temp, 0);
	return 0;
}

static int move_file(struct union_fs *t, const struct end *from, const struct end *to,
		     const struct hiding *h)
{
	if (is_hidden_by_file(to))
		return move_file_unhidden(t, from, to, h);
	if (renameat2(from->dirfd, from->name, to->dirfd, to->name, h->flags) < 0)
		return -errno;
	return 0;
}

/* Call before the move: hardlink_index_find must find the directory at every moment. */
static int note_moving(struct union_fs *t, struct inode *i)
{
	return i->type == DT_DIR && i->lower ? hardlink_index_note_moved(t, i) : 0;
}

static int note_moved(struct union_fs *t, struct inode *i)
{
	return i->type == DT_DIR ? hardlink_index_scan_again(t, i) : 0;
}

/* Update memory after a move on disk, which nothing may undo any more. If the old name cannot be
 * hidden, its lower entry shows again: a surplus file is no loss, but is logged. */
static int follow_move(struct union_fs *t, struct end *from, struct end *to, const struct hiding *h)
{
	const struct upper_dir_entry whiteout = { .is_whiteout = true, .is_below = true };
	struct upper_dir_entry up = upent_of(from->inode, to);
	int r = unhide(to), hidden = hiding_finish(t, from, h);

	if (hidden < 0)
		log_error("%s: %s was renamed, but a lower entry shows at its old name again: %s",
			  t->upper->path, from->name, strerror(-hidden));
	/* After a move by a link the old name still exists; a whiteout device has replaced it. */
	if (hidden == 0 && !t->style.has_device && from->state.below && *h->temp)
		unlinkat(from->dirfd, from->name, 0);
	/* The new name comes last: hardlink_index_find, which does not wait for the rename, must
	 * find this inode there and make no other. */
	if (!from->state.below || hidden < 0)
		upper_dir_remove(from->listing, from->name);
	else if (upper_dir_set(from->listing, from->name, &whiteout) < 0)
		r = -ENOMEM;
	if (inode_move_name(t, from->dir, from->name, to->dir, to->name) < 0)
		r = -ENOMEM;
	if (upper_dir_set(to->listing, to->name, &up) < 0)
		r = -ENOMEM;
	if (note_moved(t, from->inode) < 0)
		r = -ENOMEM;
	return r;
}

static int replace_locked(struct union_fs *t, struct end *from, struct end *to)
{
	struct removal removal = { .is_last = false };
	bool is_new = false;
	struct hiding h;
	bool has_gone;
	int r = note_moving(t, from->inode);

	if (r == 0)
		r = hiding_prepare(t, from, &h);
	if (r < 0)
		return r;
	/* Reserve before the move: nothing may fail after it. */
	r = upper_dir_reserve(to->listing, to->name, to->state.below != NULL, &is_new);
	if (r < 0) {
		hiding_abandon(from, &h);
		return r;
	}
	if (to->inode)
		r = remove_prepare(t, to->inode, &removal);
	if (r == 0)
		intent_log_about(inode_for_intent(from->inode), inode_for_intent(to->inode));
	if (r == 0)
		r = from->inode->type == DT_DIR ? move_directory(t, from, to, &h)
						: move_file(t, from, to, &h);
	if (r < 0 && is_new)
		upper_dir_remove(to->listing, to->name);
	if (r < 0)
		hiding_abandon(from, &h);
	has_gone = r == 0;
	if (has_gone)
		r = follow_move(t, from, to, &h);
	if (to->inode)
		remove_done(t, to->inode, &removal, has_gone);
	return r;
}

static int replace(struct union_fs *t, struct end *from, struct end *to) UNCHECKED_LOCKS
{
	int r = 0;

	/* After a rollback the kernel may still know another type by this name. */
	if (to->inode && (to->inode->type == DT_DIR) != (from->inode->type == DT_DIR)) {
		r = to->inode->type == DT_DIR ? -EISDIR : -ENOTDIR;
	} else if (to->inode && to->inode->type == DT_DIR) {
		r = lookup_dir_is_empty(t, to->inode);
		r = r == 1 ? 0 : r == 0 ? -ENOTEMPTY : r;
	}
	if (r == 0)
		r = prepare_move(t, from->inode, to);
	if (r == 0 && to->inode)
		r = copyup_settle_links(t, to->inode);
	if (r < 0)
		return r;
	/* Pin the source, so that its users need not look for it between two names. */
	r = upper_pin(t, from->inode);
	if (r < 0)
		return r;
	/* The lock keeps an open victim from being copied up to this name meanwhile. */
	if (to->inode)
		rwlock_wrlock(&to->inode->lock);
	r = replace_locked(t, from, to);
	if (to->inode)
		rwlock_unlock(&to->inode->lock);
	fd_cache_unpin(&from->inode->src.fd);
	return r;
}

static int exchange(struct union_fs *t, struct end *a, struct end *b)
{
	struct upper_dir_entry at_a, at_b;
	int r = prepare_move(t, a->inode, b);

	if (r == 0)
		r = prepare_move(t, b->inode, a);
	if (r == 0)
		r = note_moving(t, a->inode);
	if (r == 0)
		r = note_moving(t, b->inode);
	if (r < 0)
		return r;
	/* Take the numbers after the copy-up, which may have changed them. */
	at_a = upent_of(b->inode, a);
	at_b = upent_of(a->inode, b);
	intent_log_about(inode_for_intent(a->inode), inode_for_intent(b->inode));
	r = mode_relax_rename(a->dirfd, a->name, b->dirfd, b->name, RENAME_EXCHANGE);
	if (r < 0)
		return r;
	if (upper_dir_set(a->listing, a->name, &at_a) < 0)
		r = -ENOMEM;
	if (upper_dir_set(b->listing, b->name, &at_b) < 0)
		r = -ENOMEM;
	if (inode_swap_names(t, a->dir, a->name, b->dir, b->name) < 0)
		r = -ENOMEM;
	if (note_moved(t, a->inode) < 0 || note_moved(t, b->inode) < 0)
		r = -ENOMEM;
	return r;
}

int rename_entry(struct union_fs *t, struct inode *old_parent, const char *old_name,
		 struct inode *parent, const char *name, unsigned flags)
{
	struct end from = { .dir = old_parent, .name = old_name, .dirfd = -1 };
	struct end to = { .dir = parent, .name = name, .dirfd = -1 };
	int r = create_check_name(name) ?: inode_reserve(t);

	/* RENAME_WHITEOUT asks for a visible whiteout, which a mount cannot show. A union on top
	 * would take success for one. */
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	if (r == 0)
		r = end_look(t, &from);
	if (r == 0)
		r = end_look(t, &to);
	if (r == 0 && !from.inode)
		r = -ENOENT;
	if (r == 0 && (flags & RENAME_NOREPLACE) && to.inode)
		r = -EEXIST;
	if (r == 0 && (flags & RENAME_EXCHANGE) && !to.inode)
		r = -ENOENT;
	/* Two names of one file stay. The kernel checks that itself, but takes a file with two node
	 * ids for two files. */
	if (r == 0 && from.inode != to.inode)
		r = flags & RENAME_EXCHANGE ? exchange(t, &from, &to) : replace(t, &from, &to);
	if (from.dirfd >= 0 && to.dirfd >= 0) {
		quota_note(t->quota, from.dirfd);
		quota_note(t->quota, to.dirfd);
	}
	end_release(t, &from);
	end_release(t, &to);
	return r;
}
