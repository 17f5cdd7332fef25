// SPDX-License-Identifier: Apache-2.0
/* An operation of one step on disk is done or not done. The others are recognised by the state that
 * the dead server left (the heads of create.c, remove.c and rename.c have the steps):
 *
 * create    the name is there: it is completed (create_again)
 * link      the name is there and is the file
 * remove    the name is gone: an entry that a ".wh.NAME" hides there is removed too
 * rename    the file is at its new name, by its number in the upper: an entry left at the old one
 *           is removed, and the name hidden. Otherwise begin again
 * exchange  each is at the other's place, or begin again
 *
 * A death during replay is like one in the first attempt: each step leaves a state of that list. */
#include "veneer/data/replay.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/union/hardlink_index.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* Stat the upper's entry at a name, seen or hidden. st_ino 0: there is none. */
static int stat_upper(struct union_fs *t, struct inode *dir, const char *name, struct stat *ret)
{
	int fd, r = 0;

	*ret = (struct stat){ .st_ino = 0 };
	if (!dir->has_upper)
		return 0;
	fd = upper_pin(t, dir);
	if (fd < 0)
		return fd;
	if (fstatat(fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0) {
		r = errno == ENOENT ? 0 : -errno;
		*ret = (struct stat){ .st_ino = 0 };
	}
	fd_cache_unpin(&dir->src.fd);
	return r;
}

int replay_remove(struct union_fs *t, struct inode *parent, const char *name, bool is_dir)
{
	struct lookup_state state = { .where = LOOKUP_LOWER };
	int r = parent->has_upper ? lookup_state(t, parent, name, &state) : 0;

	if (r < 0)
		return r;
	if (state.where != LOOKUP_NOWHERE)
		return is_dir ? remove_dir(t, parent, name) : remove_file(t, parent, name);
	inode_drop_name(t, parent, name);
	return remove_leftover(t, parent, name);
}

int replay_link(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		struct stat *ret_st)
{
	struct inode *there;
	struct stat st;
	int r = stat_upper(t, parent, name, &st);

	if (r < 0)
		return r;
	if (!i->has_upper || st.st_ino != i->upper_ino)
		return create_link(t, i, parent, name, ret_st);
	r = lookup_name(t, parent, name, &there, ret_st);
	/* The link is still hidden by a whiteout. */
	if (r == -ENOENT)
		return create_link(t, i, parent, name, ret_st);
	if (r < 0)
		return r;
	inode_unref(t, there);
	return there == i ? 0 : -EEXIST;
}

/* ---- rename ---- */

struct move {
	struct inode *from, *to; /* directories */
	const char *from_name, *to_name;
	struct stat at_from, at_to; /* in the upper */
};

static int look_at_move(struct union_fs *t, struct move *m)
{
	int r = stat_upper(t, m->from, m->from_name, &m->at_from);

	return r < 0 ? r : stat_upper(t, m->to, m->to_name, &m->at_to);
}

/* Move the name in the inode table, if the inode still has its old one. */
static void move_name(struct union_fs *t, const struct intent *n, const struct move *m)
{
	struct inode *i;

	if (!inode_peek(t, m->from, m->from_name, &i))
		return;
	if (i->id == n->from.node)
		inode_move_name(t, m->from, m->from_name, m->to, m->to_name);
	inode_unref(t, i);
}

/* Enter the inode at its new name in the mirror, too. */
static int show_moved(struct union_fs *t, const struct move *m)
{
	struct upper_dir_entry up = { .ino = m->at_to.st_ino, .type = IFTODT(m->at_to.st_mode) };
	struct lookup_state state;
	struct upper_dir *d;
	int r = upper_listing(t, m->to, &d);

	if (r == 0)
		r = lookup_state(t, m->to, m->to_name, &state);
	if (r < 0)
		return r;
	up.is_below = state.below != NULL;
	return upper_dir_set(d, m->to_name, &up);
}

static int unhide_moved(struct union_fs *t, const struct move *m)
{
	int fd = upper_pin(t, m->to), r;

	if (fd < 0)
		return fd;
	r = whiteout_remove(fd, m->to_name);
	fd_cache_unpin(&m->to->src.fd);
	return r;
}

/* Remove a whiteout that was made for the old name and not placed. */
static void drop_beside(struct union_fs *t, const struct move *m)
{
	char beside[NAME_MAX + 1];
	int fd = upper_pin(t, m->from);

	if (fd < 0)
		return;
	remove_beside_name(m->from_name, beside);
	unlinkat(fd, beside, 0);
	fd_cache_unpin(&m->from->src.fd);
}

static int finish_move(struct union_fs *t, const struct intent *n, const struct move *m)
{
	struct inode *i;
	struct stat st;
	int r = unhide_moved(t, m);

	if (r == 0)
		r = show_moved(t, m);
	if (r < 0)
		return r;
	move_name(t, n, m);
	r = lookup_name(t, m->to, m->to_name, &i, &st);
	if (r < 0)
		return r;
	r = remove_leftover(t, m->from, m->from_name);
	if (r == 0) {
		inode_drop_name(t, m->from, m->from_name);
		drop_beside(t, m);
	}
	if (r == 0 && i->type == DT_DIR && i->lower)
		r = hardlink_index_note_moved(t, i);
	if (r == 0 && i->type == DT_DIR)
		r = hardlink_index_scan_again(t, i);
	inode_unref(t, i);
	return r;
}

static bool is_exchanged(const struct intent *n, const struct move *m)
{
	return n->from.upper_ino && n->to.upper_ino && m->at_to.st_ino == n->from.upper_ino &&
	       m->at_from.st_ino == n->to.upper_ino;
}

static void swap_names(struct union_fs *t, const struct intent *n, const struct move *m)
{
	struct inode *a = NULL, *b = NULL;

	if (inode_peek(t, m->from, m->from_name, &a) && a->id == n->from.node &&
	    inode_peek(t, m->to, m->to_name, &b) && b->id == n->to.node)
		inode_swap_names(t, m->from, m->from_name, m->to, m->to_name);
	if (a)
		inode_unref(t, a);
	if (b)
		inode_unref(t, b);
}

int replay_rename(struct union_fs *t, const struct intent *n, const struct replay_names *names,
		  unsigned flags)
{
	struct move m = { .from = names->from,
			  .to = names->to,
			  .from_name = names->from_name,
			  .to_name = names->to_name };
	int r = 0;

	if (n && n->is_begun)
		r = look_at_move(t, &m);
	if (r < 0)
		return r;
	if (n && n->is_begun && flags & RENAME_EXCHANGE && is_exchanged(n, &m)) {
		swap_names(t, n, &m);
		return 0;
	}
	if (n && n->is_begun && !(flags & RENAME_EXCHANGE) && n->from.upper_ino &&
	    m.at_to.st_ino == n->from.upper_ino)
		return finish_move(t, n, &m);
	/* With RENAME_NOREPLACE the kernel has checked that the name is free. An entry there is the
	 * empty directory of a dead server. */
	return rename_entry(t, m.from, m.from_name, m.to, m.to_name,
			    flags & ~(unsigned)RENAME_NOREPLACE);
}

/* ---- attributes ---- */

/* True: a server reached this step before. */
static bool note_attr(struct union_fs *t, struct inode *i, struct intent *n, const char *name)
{
	if (!n || n->is_begun)
		return n != NULL;
	n->had_value = attr_getxattr(t, i, name, NULL, 0) >= 0;
	intent_log_mark(n);
	return false;
}

static bool has_value(struct union_fs *t, struct inode *i, const char *name, const void *value,
		      size_t size)
{
	_cleanup_(freep) char *there = malloc(size + 1);
	ssize_t n = there ? attr_getxattr(t, i, name, there, size + 1) : -ENOMEM;

	return n == (ssize_t)size && !memcmp(there, value, size);
}

int replay_setxattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name,
		    const void *value, size_t size)
{
	bool is_again = note_attr(t, i, n, name);
	int r = attr_setxattr(t, i, name, value, size, XATTR_CREATE);

	return r == -EEXIST && is_again && !n->had_value && has_value(t, i, name, value, size) ? 0
											       : r;
}

int replay_removexattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name)
{
	bool is_again = note_attr(t, i, n, name);
	int r = attr_removexattr(t, i, name);

	return r == -ENODATA && is_again && n->had_value ? 0 : r;
}

void replay_setid(struct union_fs *t, struct inode *i, struct intent *n, bool keeps_capability,
		  struct attr_setid *s)
{
	const mode_t setid = S_ISUID | S_ISGID;
	struct stat st;

	if (!n)
		return;
	s->noted = n;
	if (!n->is_begun) {
		n->from.node = i->id;
		n->from.upper_ino = i->has_upper ? i->upper_ino : 0;
		n->mode = s->mode;
		n->capability_len = (uint32_t)s->capability_len;
		memcpy(n->capability, s->capability, (size_t)s->capability_len);
		intent_log_mark(n);
		return;
	}
	/* Restore only if the file got no other mode or capability since, and no other change is
	 * under way. */
	if (s->is_disturbed)
		n->mode = n->capability_len = 0;
	if (n->mode && lookup_stat(t, i, &st) == 0 &&
	    ((st.st_mode ^ n->mode) & 07777 & ~setid) == 0)
		s->mode = n->mode;
	if (keeps_capability && !s->capability_len && n->capability_len <= sizeof(s->capability)) {
		s->capability_len = n->capability_len;
		memcpy(s->capability, n->capability, n->capability_len);
	}
}

/* ---- the table, before any request ---- */

#define PENDING_MAX 1024

struct pending {
	struct union_fs *t;
	struct intent *v[PENDING_MAX];
	size_t n;
};

static void collect(struct intent *n, void *arg)
{
	struct pending *p = arg;

	if (p->n < PENDING_MAX &&
	    (n->kind == INTENT_REMOVE || n->kind == INTENT_RENAME || n->kind == INTENT_EXCHANGE))
		p->v[p->n++] = n;
}

/* The directory of one end. NULL: the kernel has forgotten it, so the request was answered. */
static struct inode *directory_of(struct union_fs *t, const struct intent_end *e)
{
	struct inode *i = inode_get(t, e->parent);

	return i && i->type == DT_DIR && *e->name ? i : NULL;
}

/* Moves of directories above it are settled by now. */
static struct inode *restored_directory(struct union_fs *t, const struct intent_end *e)
{
	struct inode *i = directory_of(t, e);

	return i && lookup_restore(t, i) == 0 ? i : NULL;
}

/* Is the node the directory of that end, or one above it, according to the table? */
static bool is_above(struct union_fs *t, uint64_t node, const struct intent_end *e)
{
	struct inode *i = node ? directory_of(t, e) : NULL, *parent;
	char name[NAME_MAX + 1];
	bool is_found = false;

	if (!i)
		return false;
	inode_ref(t, i);
	while (!(is_found = i->id == node) && inode_any_name(t, i, &parent, name) == 0) {
		inode_unref(t, i);
		i = parent;
	}
	inode_unref(t, i);
	return is_found;
}

/* A directory is found by its name: settle its move before operations beneath it. */
static bool waits_for(struct union_fs *t, const struct intent *n, const struct intent *other)
{
	if (other == n || other->kind == INTENT_REMOVE)
		return false;
	return is_above(t, other->from.node, &n->from) || is_above(t, other->from.node, &n->to) ||
	       (other->kind == INTENT_EXCHANGE &&
		(is_above(t, other->to.node, &n->from) || is_above(t, other->to.node, &n->to)));
}

static struct intent *take_next(struct pending *p)
{
	struct intent *n;
	size_t k = 0, other;

	for (; k < p->n; k++) {
		for (other = 0; other < p->n && !waits_for(p->t, p->v[k], p->v[other]); other++)
			;
		if (other == p->n)
			break;
	}
	if (k == p->n)
		k = 0; /* impossible: no directory is above itself */
	n = p->v[k];
	p->v[k] = p->v[--p->n];
	return n;
}

static void settle_remove(struct union_fs *t, const struct intent *n)
{
	struct inode *dir = restored_directory(t, &n->from);
	struct lookup_state state;

	if (!dir || !dir->has_upper || lookup_state(t, dir, n->from.name, &state) < 0 ||
	    state.where != LOOKUP_NOWHERE)
		return;
	inode_drop_name(t, dir, n->from.name);
}

/* Settle a move before its inodes are resolved: an inode could be taken for the one that has its
 * former name now. */
static void settle_move(struct union_fs *t, const struct intent *n)
{
	struct move m = { .from = restored_directory(t, &n->from),
			  .to = restored_directory(t, &n->to),
			  .from_name = n->from.name,
			  .to_name = n->to.name };

	if (!m.from || !m.to || !n->from.upper_ino || look_at_move(t, &m) < 0)
		return;
	if (n->kind == INTENT_EXCHANGE) {
		if (is_exchanged(n, &m))
			swap_names(t, n, &m);
	} else if (m.at_to.st_ino == n->from.upper_ino && m.at_from.st_ino != n->from.upper_ino) {
		move_name(t, n, &m);
	}
}

void replay_settle(struct union_fs *t, uint64_t key)
{
	struct pending *p = calloc(1, sizeof(*p));

	/* Without memory the resent requests settle it; a request that comes before them may get
	 * ESTALE. */
	if (!p)
		return;
	p->t = t;
	intent_log_each(key, collect, p);
	while (p->n) {
		const struct intent *n = take_next(p);

		if (n->kind == INTENT_REMOVE)
			settle_remove(t, n);
		else
			settle_move(t, n);
	}
	free(p);
}
