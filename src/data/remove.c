// SPDX-License-Identifier: Apache-2.0
/* State that a server leaves when it is killed after each step; replay_remove completes it.
 *
 * in lower layers    1. other names of the file copied up (copyup_settle_links)
 *                    2. a whiteout made: done
 * in the upper       1. unlinked; a directory that only looks empty moved to the work directory,
 *                       which the next mount empties: done
 * in both, device    1. exchanged in one step with a whiteout, which the rename itself or an
 *                       earlier step makes: done
 * in both, .wh.NAME  1. the whiteout placed: the name is gone, the entry that it hides is not
 *                    2. that entry moved to the work directory: done */
#include "veneer/data/remove.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/data/copyup.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/rmtree.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define SHARED_WHITEOUT "#whiteout"

int remove_make_whiteout(struct union_fs *t, int dirfd, const char *name)
{
	int r;

	/* A link to one shared inode is cheaper than a new inode, until its link count is full. */
	if (t->style.has_device && linkat(t->workfd, SHARED_WHITEOUT, dirfd, name, 0) == 0)
		return 0;
	if (t->style.has_device && errno == EMLINK)
		unlinkat(t->workfd, SHARED_WHITEOUT, 0);
	r = whiteout_make(&t->style, dirfd, name);
	/* Share this inode with the next whiteout; if the link fails, that one gets its own
	 * inode. */
	if (r == 0 && t->style.has_device && linkat(dirfd, name, t->workfd, SHARED_WHITEOUT, 0) < 0)
		return 0;
	return r;
}

void remove_temp_dir(struct union_fs *t, const char *temp)
{
	rmtree(t->workfd, temp);
}

void remove_beside_name(const char *name, char beside[NAME_MAX + 1])
{
	const size_t max = NAME_MAX - strlen(WHITEOUT_PREFIX WHITEOUT_PREFIX "#");

	snprintf(beside, NAME_MAX + 1, WHITEOUT_PREFIX WHITEOUT_PREFIX "#%.*s", (int)max, name);
}

int remove_unseen(struct union_fs *t, int dirfd, const char *name)
{
	char temp[32];

	int r;

	upper_temp_name(t, temp);
	r = mode_relax_rename(dirfd, name, t->workfd, temp, 0);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (unlinkat(t->workfd, temp, 0) < 0)
		remove_temp_dir(t, temp);
	return 0;
}

/* Make a whiteout in two steps: the one that can fail for lack of room comes first, in the work
 * directory. A whiteout that is never placed is removed with the work directory. */
static int prepare_whiteout(struct union_fs *t, char temp[32])
{
	int fd;

	upper_temp_name(t, temp);
	if (t->style.has_device)
		return mknodat(t->workfd, temp, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
	fd = openat(t->workfd, temp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0700);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int place_whiteout(struct union_fs *t, const char *temp, int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];

	if (!t->style.has_device) {
		if (snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", name) >=
		    (int)sizeof(hidden))
			return -ENAMETOOLONG;
		name = hidden;
	}
	return renameat2(t->workfd, temp, dirfd, name, 0) < 0 ? -errno : 0;
}

int remove_prepare(struct union_fs *t, struct inode *i, struct removal *ret)
{
	struct stat st;
	int r;

	*ret = (struct removal){ .is_last = false };
	if (!i->has_upper)
		return 0;
	r = upper_hold(t, i);
	if (r < 0)
		return r;
	ret->is_last = i->type != DT_DIR && upper_stat(t, i, &st) == 0 && st.st_nlink <= 1;
	return 0;
}

void remove_done(struct union_fs *t, struct inode *i, const struct removal *r, bool has_gone)
{
	if (has_gone && r->is_last)
		inode_note_gone(t, i);
	/* While the directory is held, no other file gets its inode number. */
	if (has_gone && i->type == DT_DIR && i->has_upper)
		quota_gone(t->quota, i->upper_ino);
	upper_let_go(t, i);
}

/* Replace the upper entry by a whiteout, in one step if the file system can. */
static int swap_for_whiteout(struct union_fs *t, int dirfd, const char *name, char temp[32])
{
	char white[32];
	int r;

	upper_temp_name(t, temp);
	if (t->style.has_device && t->style.has_rename)
		return mode_relax_rename(dirfd, name, t->workfd, temp, RENAME_WHITEOUT);
	r = prepare_whiteout(t, white);
	if (r < 0)
		return r;
	if (t->style.has_device) {
		r = mode_relax_rename(dirfd, name, t->workfd, white, RENAME_EXCHANGE);
		if (r == 0)
			strcpy(temp, white);
		return r;
	}
	/* The whiteout first: it hides the name, whether or not the entry can then be moved
	 * away. */
	r = place_whiteout(t, white, dirfd, name);
	if (r == 0) {
		r = mode_relax_rename(dirfd, name, t->workfd, temp, 0);
		if (r < 0)
			whiteout_remove(dirfd, name);
	}
	return r;
}

/* Remove the visible entry at name. The caller read state with the directory held. */
static int remove_entry(struct union_fs *t, struct inode *parent, const char *name,
			const struct lookup_state *state, bool is_dir)
{
	const struct upper_dir_entry whiteout = { .is_whiteout = true, .is_below = true };
	char temp[32] = "";
	bool is_new = false;
	struct upper_dir *d;
	int dirfd, r = upper_listing(t, parent, &d);

	if (r < 0)
		return r;
	dirfd = upper_pin(t, parent);
	if (dirfd < 0)
		return dirfd;
	if (state->below)
		r = upper_dir_reserve(d, name, true, &is_new);
	if (r < 0)
		goto out;
	if (state->where == LOOKUP_LOWER) {
		r = remove_make_whiteout(t, dirfd, name);
	} else if (state->below) {
		r = swap_for_whiteout(t, dirfd, name, temp);
	} else if (unlinkat(dirfd, name, is_dir ? AT_REMOVEDIR : 0) < 0) {
		r = -errno;
		/* The directory looks empty: only whiteouts or an opaque mark are in it. */
		if (is_dir && (r == -ENOTEMPTY || r == -EEXIST)) {
			upper_temp_name(t, temp);
			r = mode_relax_rename(dirfd, name, t->workfd, temp, 0);
		}
	}
	if (r == 0 && state->below)
		r = upper_dir_set(d, name, &whiteout);
	else if (r == 0)
		upper_dir_remove(d, name);
	if (r < 0 && is_new)
		upper_dir_remove(d, name);
	quota_note(t->quota, dirfd);
out:
	fd_cache_unpin(&parent->src.fd);
	if (r == 0 && *temp && is_dir)
		remove_temp_dir(t, temp);
	else if (r == 0 && *temp)
		unlinkat(t->workfd, temp, 0);
	return r;
}

int remove_made(struct union_fs *t, struct inode *parent, const char *name,
		const struct lookup_state *before, bool is_dir)
{
	struct lookup_state now = *before;

	now.where = LOOKUP_UPPER;
	return remove_entry(t, parent, name, &now, is_dir);
}

int remove_leftover(struct union_fs *t, struct inode *parent, const char *name)
{
	struct lookup_state state;
	int dirfd, r = lookup_state(t, parent, name, &state);

	if (r < 0)
		return r;
	/* Visible: an entry that a whiteout was to hide, the other half of an exchange, or a
	 * surplus link. */
	if (state.where != LOOKUP_NOWHERE)
		return remove_entry(t, parent, name, &state,
				    state.where == LOOKUP_UPPER && state.up.type == DT_DIR);
	if (!state.is_whiteout)
		return 0;
	dirfd = upper_pin(t, parent);
	if (dirfd < 0)
		return dirfd;
	if (whiteout_is_by_name(dirfd, name))
		r = remove_unseen(t, dirfd, name);
	if (r == 0 && !state.below) {
		struct upper_dir *d;

		r = whiteout_remove(dirfd, name);
		if (r == 0 && upper_listing(t, parent, &d) == 0)
			upper_dir_remove(d, name);
	}
	fd_cache_unpin(&parent->src.fd);
	return r;
}

static int remove_any(struct union_fs *t, struct inode *parent, const char *name, bool is_dir)
{
	struct lookup_state state;
	struct removal removal;
	struct inode *i = NULL;
	struct stat st;
	int r = copyup_inode(t, parent, NULL);

	if (r == 0)
		r = lookup_settle(t, parent, name);
	if (r == 0)
		r = lookup_state(t, parent, name, &state);
	if (r == 0 && state.where == LOOKUP_NOWHERE)
		r = -ENOENT;
	if (r < 0)
		return r;
	/* The kernel looked the name up, so the inode is usually known. A dead server may have told
	 * the kernel one of several names, though. If the lookup fails, nobody has the file
	 * open. */
	if (!inode_peek(t, parent, name, &i) && lookup_name(t, parent, name, &i, &st) < 0) {
		intent_log_about(INTENT_NOTHING, INTENT_NOTHING);
		r = remove_entry(t, parent, name, &state, is_dir);
		/* hardlink_index_find may just have looked it up. */
		if (r == 0)
			inode_drop_name(t, parent, name);
		return r;
	}
	/* After a rollback the kernel may still know another type by this name. */
	if (is_dir != inode_is_dir(i)) {
		r = is_dir ? -ENOTDIR : -EISDIR;
	} else if (is_dir) {
		r = lookup_dir_is_empty(t, i);
		r = r == 1 ? 0 : r == 0 ? -ENOTEMPTY : r;
	}
	if (r == 0)
		r = copyup_settle_links(t, i);
	if (r == 0) {
		/* The lock keeps a write to the open file from copying it up to a name that is
		 * being removed. */
		rwlock_wrlock(&i->lock);
		if (state.where == LOOKUP_LOWER && i->has_upper)
			r = lookup_state(t, parent, name, &state);
		if (r == 0)
			r = remove_prepare(t, i, &removal);
		if (r == 0) {
			intent_log_about(inode_for_intent(i), INTENT_NOTHING);
			r = remove_entry(t, parent, name, &state, is_dir);
			if (r == 0)
				inode_drop_name(t, parent, name);
			remove_done(t, i, &removal, r == 0);
		}
		rwlock_unlock(&i->lock);
	}
	inode_unref(t, i);
	return r;
}

int remove_file(struct union_fs *t, struct inode *parent, const char *name)
{
	return remove_any(t, parent, name, false);
}

int remove_dir(struct union_fs *t, struct inode *parent, const char *name)
{
	return remove_any(t, parent, name, true);
}
