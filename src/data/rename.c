// SPDX-License-Identifier: Apache-2.0
/* State that a server leaves when it is killed after each step. replay_rename finishes from step 5
 * on; before it begins again.
 *
 * 1. both directories and the source copied up (copyup.c)
 * 2. path in the source's mark; redirect, which says where the directory is merged from already;
 *    opaque mark, on what has nothing beneath: nothing changes by them
 * 3. a whiteout made for the old name, if the rename itself cannot: beside it, hidden. Taken away
 *    by the next rename of that name
 * 4. target hidden by ".wh.NAME": what that hides taken away. A file: linked there, still hidden. A
 *    directory: an empty one put there, and seen once the whiteout is away; nobody can have made it
 *    but us, as the kernel knows of none
 * 5. renamed; or exchanged with a whiteout, or with a directory that only looks empty, which is
 *    then seen at the old name; or the ".wh.NAME" away, and the file has both names. If step 3 was
 *    needed, what is below the old name is seen
 * 6. the old name hidden, and what is left there moved to the work directory: done
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

/* One end of a rename: a name and what is known of it. */
struct end {
	struct inode *dir;
	const char *name;
	struct lookup_state state;
	struct upper_dir *listing;
	struct inode *inode; /* referenced; NULL: nothing there, or not known */
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

/* Refuse a move whose origin cannot be written: EXDEV, upon which mv(1) copies. */
static int refuse_move(struct inode *i, int r)
{
	_cleanup_(freep) char *path = r == -ENOSPC ? image_path(i->lower) : NULL;

	/* ext4 says ENOSPC of what does not fit beside an inode's other attributes. */
	if (path && strlen(path) > ATTR_SAFE_MAX)
		r = -E2BIG;
	return r == -EOPNOTSUPP || r == -ENAMETOOLONG || r == -E2BIG || r == -ERANGE ? -EXDEV : r;
}

/* Have the directory say where it came from: what is merged into it from below does not move with
 * it. */
static int set_redirect(struct union_fs *t, struct inode *i, int fd)
{
	_cleanup_(freep) char *path = image_path(i->lower);

	if (!path)
		return -ENOMEM;
	return whiteout_set_redirect(&t->style, fd, path);
}

/* A file in it may say so, which must not change its times. */
static int set_opaque(struct union_fs *t, int fd)
{
	struct timespec times[2];
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : whiteout_set_opaque(&t->style, fd);

	if (r < 0)
		return r;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	/* Rename it also where its times cannot be set back. */
	utimensat(fd, "", times, AT_EMPTY_PATH);
	return 0;
}

static int prepare_directory(struct union_fs *t, struct inode *i, const struct end *to)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	bool lies_over_dir = to->state.below && to->state.below->type == DT_DIR;
	int fd, r = 0;

	/* A program that reads the upper raw finds the content and no redirects. */
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

/* Make the inode of one end ready to stand at the other. */
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

/* Remove ".wh.NAME": the name is taken again. */
static int unhide(const struct end *e)
{
	char hidden[NAME_MAX + 1];

	if (!e->state.is_whiteout ||
	    snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", e->name) >= (int)sizeof(hidden))
		return 0;
	return unlinkat(e->dirfd, hidden, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* How the source's name is hidden when something is below it: by the rename itself, or by a
 * whiteout that was made before, under a reserved name of the same directory that is at least as
 * long: nothing can fail for want of room once the file has moved. */
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
	unlinkat(from->dirfd, h->temp, 0); /* of a server that was killed */
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

/* The old directory (or whiteout) of the target's place was exchanged into the source's place: take
 * it away, and hide what is below the source's name if there is anything. */
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

/* A directory cannot be at two places at once: first put an empty one where ".wh.NAME" hides it,
 * take that away, and then rename over it. A server that is killed leaves an empty directory at the
 * most. What ".wh.NAME" hides there so far goes first. */
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

/* As long as ".wh.NAME" is there, a file moved to NAME is not seen, and at its old name it is gone:
 * have it at both until the whiteout is away. What the whiteout hides so far, perhaps our own of an
 * attempt that was cut off, goes first. */
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

/* Before it moves, as hardlink_index_find must find it at every moment. */
static int note_moving(struct union_fs *t, struct inode *i)
{
	return i->type == DT_DIR && i->lower ? hardlink_index_note_moved(t, i) : 0;
}

static int note_moved(struct union_fs *t, struct inode *i)
{
	return i->type == DT_DIR ? hardlink_index_scan_again(t, i) : 0;
}

/* Follow a move that has happened: nothing may undo it any more, and what is in memory follows. A
 * name that could not be hidden shows what is below it again: one file too many is no loss, but it
 * is worth a line. */
static int follow_move(struct union_fs *t, struct end *from, struct end *to, const struct hiding *h)
{
	const struct upper_dir_entry whiteout = { .is_whiteout = true, .is_below = true };
	struct upper_dir_entry up = upent_of(from->inode, to);
	int r = unhide(to), hidden = hiding_finish(t, from, h);

	if (hidden < 0)
		log_error("%s: %s was renamed, and what is below its old name is seen again: %s",
			  t->upper->path, from->name, strerror(-hidden));
	/* After a move by way of a link the old name is still there; a whiteout device went over
	 * it. */
	if (hidden == 0 && !t->style.has_device && from->state.below && *h->temp)
		unlinkat(from->dirfd, from->name, 0);
	/* The new name last: hardlink_index_find, which does not wait for us, must find this inode
	 * there and make no other. */
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
	/* Nothing may fail any more once it has moved. */
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

	if (to->inode && to->inode->type == DT_DIR) {
		r = lookup_dir_is_empty(t, to->inode);
		r = r == 1 ? 0 : r == 0 ? -ENOTEMPTY : r;
	}
	if (r == 0)
		r = prepare_move(t, from->inode, to);
	if (r == 0 && to->inode)
		r = copyup_settle_links(t, to->inode);
	if (r < 0)
		return r;
	/* Pin it, so that its users need not look for it between two names. */
	r = upper_pin(t, from->inode);
	if (r < 0)
		return r;
	/* Keeps the victim, if it is open, from being copied up to this name meanwhile. */
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
	/* After the copy-up, which may have given them other numbers. */
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

	/* RENAME_WHITEOUT asks for a whiteout that can be seen, which there is none of in a mount.
	 * A union on top would take success for one. */
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
	/* Two names of one file stay: the kernel sees to that itself, but takes one with two node
	 * ids for two. */
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
