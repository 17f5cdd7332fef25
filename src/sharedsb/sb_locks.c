// SPDX-License-Identifier: Apache-2.0
/* Locks of the image's own files. A lock request states the open file and the caller, not the
 * mount. An open file stays with the mount that opened it, so the mount is read from /proc once per
 * open file and stored in a *tie*. From then on requests by that open file belong to the mount, for
 * the node id that the file has there, and so conflict with requests of opens by that id.
 *
 * 1. A lock held by an open file of the image has a tie until RELEASE, so that requests that end
 *    locks find it even if the process is gone.
 * 2. A tie holds a lookup of its mount's inode, counted as the server's own: so the inode and its
 *    node id stay.
 * 3. Only a thread that has pinned a mount makes a tie for it; the ties of a leaving mount are
 *    dropped when no thread has it pinned.
 * 4. The next server makes ties again for open files that hold a lock. Requests that end locks by
 *    an open file without a tie are kept while a mount is awaited: they are not sent again, and
 *    that mount may have such a lock.
 * 5. A waiter is registered here before any work for it: an interrupt finds it, or it finds the
 *    interrupt. */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"
#include "veneer/fuse/op_lock.h"
#include "veneer/recover/activity.h"
#include "veneer/sys/proc_fds.h"
#include "veneer/union/locks.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <linux/fuse.h>
#include <stdio.h>

struct tie {
	struct hlink by_handle, by_node;
	struct list_link link; /* of its mount's ties */
	uint64_t handle; /* of the open file */
	uint64_t node; /* the common mount's */
	uint32_t number, own; /* of the mount, and its node id */
};

/* if a mount opens slowly; beyond this a lock of it may stay held */
#define LATE_MAX (1u << 18)

/* A request that ended locks before all mounts that may hold them were open again. */
struct late {
	struct list_link link;
	enum { LATE_FLUSH, LATE_UNFLOCK, LATE_RELEASE } kind;
	uint64_t node, owner, handle; /* node: only of a flush */
};

static uint64_t hash_of(uint64_t number)
{
	return hash_key(&number, sizeof(number), 0);
}

/* ---- the mount of a request ---- */

struct found_root {
	uint32_t number; /* 0: none yet */
	bool is_doubtful;
};

static void note_root(const char *root, void *arg)
{
	struct found_root *f = arg;
	unsigned number;
	int end = 0;

	if (sscanf(root, "/%9u%n", &number, &end) != 1 || !number ||
	    (root[end] && root[end] != '/'))
		f->is_doubtful = true;
	else if (f->number && f->number != number)
		f->is_doubtful = true;
	else
		f->number = number;
}

/* The mount by which a caller has a file of the image open, pinned. NULL: none, several, or
 * unknown. */
static struct sb_member *mount_of_caller(struct shared_sb *g, const struct inode *common,
					 uint32_t caller)
{
	struct found_root f = { .number = 0 };

	if (proc_fds_roots((pid_t)caller, g->dev_major, g->dev_minor, inode_ino(common), note_root,
			   &f) < 0 ||
	    f.is_doubtful)
		return NULL;
	return f.number ? sb_member_pin(g, f.number) : NULL;
}

static bool is_same(const struct inode *i, const struct inode *common)
{
	return inode_is_regular(i) && inode_ino(i) == inode_ino(common);
}

/* The inode at the path that the file has in the image, if it is still that file. Referenced. */
static struct inode *find_by_path(struct union_fs *t, const struct inode *common)
{
	_cleanup_(freep) char *path = image_path(inode_lower(common));
	struct inode *i;

	if (!path || sb_reply_look_up(t, path, &i) < 0)
		return NULL;
	if (is_same(i, common))
		return i;
	inode_unref(t, i);
	return NULL;
}

/* Is i the file, or a directory that contains it? The file or its directory was moved, and the one
 * that moved is in use, as the file is open. Takes over the reference on i. */
static struct inode *same_or_in(const struct sb_member *c, struct inode *i,
				const struct inode *common)
{
	struct union_fs *t = &c->m->tree;
	struct inode *child = NULL;
	struct stat st;

	if (is_same(i, common))
		return i;
	if (inode_is_dir(i) && lookup_restore(t, i) == 0 &&
	    (t->image != c->shared_sb->common->tree.image ||
	     inode_is_merged_with(i, inode_lower(common)->parent)) &&
	    lookup_name(t, i, inode_lower(common)->name, &child, &st) == 0 &&
	    !is_same(child, common)) {
		inode_unref(t, child);
		child = NULL;
	}
	inode_unref(t, i);
	return child;
}

static struct inode *find_moved(const struct sb_member *c, const struct inode *common)
{
	struct union_fs *t = &c->m->tree;
	const uint32_t end = inode_end(t);
	struct inode *found = NULL;

	for (uint32_t id = NODE_TABLE_ROOT; id < end && !found; id++) {
		const struct node_slot *s = inode_slot(t, id);
		struct inode *i = s && (s->type == DT_DIR || s->ino == inode_ino(common))
					  ? inode_hold(t, id)
					  : NULL;

		found = i ? same_or_in(c, i, common) : NULL;
	}
	return found;
}

static void ungrant(struct sb_member *c, uint32_t own)
{
	inode_note_tied(&c->m->tree, own, -1);
	inode_forget(&c->m->tree, own, 1);
}

/* Grant the mount's inode of that file, with a lookup counted as the server's own. 0 or -ENOLCK. */
static int grant_own(struct sb_member *c, const struct inode *common, uint32_t *ret)
{
	struct union_fs *t = &c->m->tree;
	struct activity *before = activity_begin(c->m->activity);
	struct inode *i =
		inode_lower(common) && inode_lower(common)->parent ? find_by_path(t, common) : NULL;
	uint32_t generation;

	if (!i && inode_lower(common) && inode_lower(common)->parent)
		i = find_moved(c, common);
	activity_end(before);
	if (!i)
		return -ENOLCK;
	inode_grant(t, i, ret, &generation);
	if (inode_note_tied(t, *ret, 1) == 0)
		return 0;
	inode_forget(t, *ret, 1);
	return -ENOLCK;
}

/* ---- ties ---- */

static struct tie *tie_locked(struct shared_sb *g, uint64_t handle)
{
	for (struct hlink *l = htab_first(&g->ties, hash_of(handle)); l; l = htab_next(l)) {
		struct tie *t = container_of(l, struct tie, by_handle);

		if (t->handle == handle)
			return t;
	}
	return NULL;
}

static bool find_tie(struct shared_sb *g, uint64_t handle, struct tie *ret)
{
	const struct tie *t;

	if (!g->n_ties)
		return false;
	LOCK_SCOPE(&g->lock);
	t = tie_locked(g, handle);
	if (t)
		*ret = *t;
	return t != NULL;
}

/* Threads that share a descriptor may call concurrently. */
static int insert_locked(struct shared_sb *g, struct sb_member *c, struct tie *t)
{
	if (tie_locked(g, t->handle))
		return -EEXIST;
	if (htab_insert(&g->ties, &t->by_handle, hash_of(t->handle)) < 0)
		return -ENOMEM;
	if (htab_insert(&g->ties_by_node, &t->by_node, hash_of(t->node)) < 0) {
		htab_remove(&g->ties, &t->by_handle);
		return -ENOMEM;
	}
	list_add_tail(&c->ties, &t->link);
	g->n_ties++;
	return 0;
}

static void remove_locked(struct shared_sb *g, struct tie *t)
{
	htab_remove(&g->ties, &t->by_handle);
	htab_remove(&g->ties_by_node, &t->by_node);
	list_del(&t->link);
	g->n_ties--;
}

static int insert(struct sb_member *c, struct tie *t)
{
	LOCK_SCOPE(&c->shared_sb->lock);
	return insert_locked(c->shared_sb, c, t);
}

/* Keep the request for the awaited mounts, if there are any; without memory, wait for the mounts.
 * True: a tie exists by now. */
static bool keep_late(struct shared_sb *g, const struct late *what)
{
	struct late *l;

	LOCK_SCOPE(&g->lock);
	while (!tie_locked(g, what->handle) && g->n_awaited && g->n_late < LATE_MAX) {
		l = malloc(sizeof(*l));
		if (l) {
			*l = *what;
			list_add_tail(&g->late, &l->link);
			g->n_late++;
			return false;
		}
		pthread_cond_wait(&g->unpinned, &g->lock);
	}
	return tie_locked(g, what->handle);
}

void sb_locks_forget_late(struct shared_sb *g)
{
	while (!list_is_empty(&g->late)) {
		struct late *l = container_of(g->late.next, struct late, link);

		list_del(&l->link);
		free(l);
	}
	g->n_late = 0;
}

/* c is pinned. 0 or -ENOLCK; *c changes if another thread has made the tie first. */
static int make_tie(struct shared_sb *g, struct sb_member **c, uint64_t node, uint64_t handle,
		    const struct inode *common, struct tie *ret)
{
	struct tie *t = malloc(sizeof(*t));
	int r;

	if (!t)
		return -ENOLCK;
	*t = (struct tie){ .handle = handle, .node = node, .number = (*c)->number };
	r = grant_own(*c, common, &t->own);
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = *t;
	r = insert(*c, t);
	if (r == 0)
		return 0;
	ungrant(*c, t->own);
	free(t);
	if (r != -EEXIST || !find_tie(g, handle, ret))
		return -ENOLCK;
	sb_member_unpin(*c);
	*c = sb_member_pin(g, ret->number);
	return *c ? 0 : -ENOLCK;
}

static bool gives_up_flock(const struct fuse_lk_in *in)
{
	return in->lk_flags & FUSE_LK_FLOCK && in->lk.type == F_UNLCK;
}

int sb_locks_find(struct shared_sb *g, const struct fuse_in_header *in,
		  const struct fuse_lk_in *lock, struct sb_member **ret, uint32_t *ret_own)
{
	const struct inode *common;
	struct sb_member *c;
	struct tie t;
	bool is_tied;
	int r;

	if (lock->fh & SHARED_SB_UNFLUSHED && !(lock->lk_flags & FUSE_LK_FLOCK))
		return lock->lk.type == F_UNLCK ? 0 : -ENOLCK;
	if (gives_up_flock(lock) &&
	    !keep_late(g, &(struct late){
				  .kind = LATE_UNFLOCK, .owner = lock->owner, .handle = lock->fh }))
		return 0;
	is_tied = find_tie(g, lock->fh, &t);
	if (is_tied) {
		c = sb_member_pin(g, t.number);
		r = c ? 0 : -ENOLCK;
	} else {
		common = sb_reply_common_inode(g, in->nodeid);
		c = common ? mount_of_caller(g, common, in->pid) : NULL;
		r = c && c->m->tree.locks ? make_tie(g, &c, in->nodeid, lock->fh, common, &t)
					  : -ENOLCK;
	}
	if (r < 0) {
		if (c)
			sb_member_unpin(c);
		return r;
	}
	*ret = c;
	*ret_own = t.own;
	return 1;
}

/* The tie of that node whose mount has the next higher number. */
static bool next_tie(struct shared_sb *g, uint64_t node, uint32_t above, struct tie *ret)
{
	bool is_found = false;

	LOCK_SCOPE(&g->lock);
	for (struct hlink *l = htab_first(&g->ties_by_node, hash_of(node)); l; l = htab_next(l)) {
		const struct tie *t = container_of(l, struct tie, by_node);

		if (t->node != node || t->number <= above || (is_found && t->number >= ret->number))
			continue;
		*ret = *t;
		is_found = true;
	}
	return is_found;
}

static void flush(struct shared_sb *g, const struct tie *t, uint64_t owner, uint64_t handle)
{
	struct sb_member *c = sb_member_pin(g, t->number);
	struct activity *before;

	if (!c)
		return;
	before = activity_begin(c->m->activity);
	op_lock_flush(c->m, t->own, owner, handle);
	activity_end(before);
	sb_member_unpin(c);
}

void sb_locks_flush(struct shared_sb *g, uint64_t node, uint64_t owner, uint64_t handle)
{
	struct tie t = { .number = 0 };

	/* Test n_awaited first: a mount that is no longer awaited has made its ties. */
	if (!g->n_awaited && !g->n_ties)
		return;
	if (keep_late(g, &(struct late){ .kind = LATE_FLUSH,
					 .node = node,
					 .owner = owner,
					 .handle = handle }) &&
	    find_tie(g, handle, &t)) {
		flush(g, &t, owner, handle);
		return;
	}
	while (next_tie(g, node, t.number, &t))
		flush(g, &t, owner, handle);
}

static struct tie *take_tie(struct shared_sb *g, uint64_t handle)
{
	struct tie *t;

	if (!g->n_awaited && !g->n_ties)
		return NULL;
	if (!keep_late(g, &(struct late){ .kind = LATE_RELEASE, .handle = handle }))
		return NULL;
	LOCK_SCOPE(&g->lock);
	t = tie_locked(g, handle);
	if (t)
		remove_locked(g, t);
	return t;
}

void sb_locks_release(struct shared_sb *g, uint64_t handle)
{
	_cleanup_(freep) struct tie *t = take_tie(g, handle);
	struct sb_member *c = t ? sb_member_pin(g, t->number) : NULL;
	struct activity *before;

	if (!c)
		return;
	before = activity_begin(c->m->activity);
	op_lock_release(c->m, t->own, handle);
	ungrant(c, t->own);
	activity_end(before);
	sb_member_unpin(c);
}

struct left {
	struct tie *ties; /* only handle, number and own are set */
	size_t n, room;
	uint32_t number;
};

static void note_left(const struct lock_record *r, void *arg)
{
	struct left *v = arg;

	if (r->handle & SHARED_SB_OF_IMAGE && v->n < v->room)
		v->ties[v->n++] = (struct tie){ .handle = r->handle,
						.number = v->number,
						.own = (uint32_t)r->node };
}

/* The common mount's node id of the file that has node id own in a member; 0: not found. The kernel
 * holds it, as the file is open. */
static uint64_t common_node(struct sb_member *c, uint32_t own)
{
	struct inode *i = inode_get(&c->m->tree, own);
	struct image_entry *e = NULL;
	uint32_t id, generation;

	if (i && lookup_restore(&c->m->tree, i) == 0 && inode_lower(i))
		e = sb_twin_entry(c, inode_lower(i));
	if (!e || sb_reply_grant_common(c->shared_sb, e, &id, &generation) < 0)
		return 0;
	inode_forget(&c->shared_sb->common->tree, id, 1);
	return id;
}

/* An open file may hold several locks: own becomes 0 for all but one. */
static int tie_again(struct sb_member *c, struct tie *left)
{
	struct tie *t;
	int r;

	if (find_tie(c->shared_sb, left->handle, &(struct tie){ 0 })) {
		left->own = 0;
		return 0;
	}
	t = malloc(sizeof(*t));
	if (!t)
		return -ENOMEM;
	*t = *left;
	t->node = common_node(c, t->own);
	r = insert(c, t);
	if (r < 0)
		free(t);
	return r;
}

/* The tie of this member that a late request ends; NULL: none. */
static struct tie *tie_of_late_locked(struct sb_member *c, const struct late *what)
{
	struct tie *t = tie_locked(c->shared_sb, what->handle);

	if (t || what->kind != LATE_FLUSH)
		return t && t->number == c->number ? t : NULL;
	for (struct hlink *l = htab_first(&c->shared_sb->ties_by_node, hash_of(what->node)); l;
	     l = htab_next(l)) {
		t = container_of(l, struct tie, by_node);
		if (t->node == what->node && t->number == c->number)
			return t;
	}
	return NULL;
}

static void end_late(struct sb_member *c, const struct late *what, uint32_t own)
{
	if (what->kind == LATE_FLUSH) {
		op_lock_flush(c->m, own, what->owner, what->handle);
	} else if (what->kind == LATE_UNFLOCK) {
		op_lock_unflock(c->m, own, what->owner);
	} else {
		op_lock_release(c->m, own, what->handle);
		ungrant(c, own);
	}
}

/* Apply the late requests. The member's ties exist, so every request that ends a lock of it from
 * here on finds them, and waits until it can pin the member. */
static int catch_up(struct sb_member *c)
{
	struct shared_sb *g = c->shared_sb;
	_cleanup_(freep) struct late *ended = NULL;
	_cleanup_(freep) uint32_t *own = NULL;
	size_t n = 0;

	mutex_lock(&g->lock);
	ended = calloc(g->n_late + 1, sizeof(*ended));
	own = calloc(g->n_late + 1, sizeof(*own));
	for (struct list_link *l = g->late.next; ended && own && l != &g->late; l = l->next) {
		const struct late *what = container_of(l, struct late, link);
		struct tie *t = tie_of_late_locked(c, what);

		if (!t)
			continue;
		ended[n] = *what;
		own[n++] = t->own;
		if (what->kind == LATE_RELEASE) {
			remove_locked(g, t);
			free(t);
		}
	}
	mutex_unlock(&g->lock);
	for (size_t k = 0; k < n; k++)
		end_late(c, &ended[k], own[k]);
	return ended && own ? 0 : -ENOMEM;
}

/* Return the lookups of files that held no lock when the server died. Files with ties are uncounted
 * meanwhile, which tells them apart. (If the server dies here, a file without a tie counts as held
 * by the kernel, which costs pages.) */
static void give_back_rest(struct sb_member *c, const struct left *v)
{
	struct union_fs *t = &c->m->tree;
	const uint32_t end = inode_end(t);

	for (size_t k = 0; k < v->n; k++)
		inode_note_tied(t, v->ties[k].own, -1);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < end; id++) {
		const unsigned n = inode_count_tied(t, id);

		if (!n)
			continue;
		inode_note_tied(t, id, -(int)n);
		inode_forget(t, id, n);
	}
	for (size_t k = 0; k < v->n; k++)
		inode_note_tied(t, v->ties[k].own, 1);
}

/* The lookup of a tie is still counted in the node table. */
int sb_locks_resume(struct sb_member *c)
{
	struct locks *locks = c->m->tree.locks;
	struct left v = { .number = c->number, .room = locks ? locks_count(locks) : 0 };
	int r = 0;

	v.ties = calloc(v.room + 1, sizeof(*v.ties));
	if (!v.ties)
		return -ENOMEM;
	if (v.room)
		locks_each(locks, note_left, &v);
	for (size_t k = 0; k < v.n && r == 0; k++)
		r = tie_again(c, &v.ties[k]);
	if (r == 0)
		give_back_rest(c, &v);
	free(v.ties);
	return r ?: catch_up(c);
}

void sb_locks_leave(struct sb_member *c)
{
	struct shared_sb *g = c->shared_sb;

	LOCK_SCOPE(&g->lock);
	while (!list_is_empty(&c->ties)) {
		struct tie *t = container_of(c->ties.next, struct tie, link);

		remove_locked(g, t);
		free(t);
	}
}
