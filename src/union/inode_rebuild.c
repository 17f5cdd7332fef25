// SPDX-License-Identifier: Apache-2.0
#include "veneer/union/inode_rebuild.h"

#include "inode-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/union/inode_rollback.h"
#include "veneer/union/quota.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH	 256 /* inodes while the lock is held; a judgement */
#define SLOTS	 16384 /* slots while the lock is held, if most are free */
#define BREAK_US 10 /* for threads that wait for the lock */

struct held {
	uint32_t id;
	int fd;
};

struct inode_rebuild {
	/* A view for nodes and inodes only: the new inodes, and from inode_rebuild_leave on the old
	 * ones. */
	struct union_fs tree;
	/* The new tables, from inode_rebuild_leave to inode_rebuild_attach. */
	struct node_table *nodes;
	struct inode_table *inodes;
	struct held *held;
	size_t n_held, cap_held;
	/* Files that get a copy if the mount is rolled back to a snapshot. */
	struct held *copied;
	size_t n_copied, cap_copied;
	uint32_t *doubtful; /* ids of inodes that may have no user */
	size_t n_doubtful, cap_doubtful;
};

static int doubt(struct inode_rebuild *b, uint32_t id)
{
	int r = array_reserve(&b->doubtful, &b->cap_doubtful, b->n_doubtful + 1);

	if (r == 0)
		b->doubtful[b->n_doubtful++] = id;
	return r;
}

/* ---- one slot; under the lock of the table that is in use ---- */

static int lead_former(struct inode_rebuild *b, uint32_t id, const struct node_slot *s)
{
	struct inode *i = node_table_object(b->tree.nodes, s->successor);

	return i && i->id == s->successor ? inode_add_former_locked(&b->tree, i, id) : -EAGAIN;
}

static int name(struct inode_rebuild *b, struct inode *i)
{
	const char *text;
	uint32_t parent;
	size_t len = node_table_name(b->tree.nodes, i->id, &parent, &text);
	const struct inode *dir = len && parent ? node_table_object(b->tree.nodes, parent) : NULL;

	if (len && parent && (!dir || dir->id != parent || dir->type != DT_DIR))
		return -EAGAIN;
	return inode_name_unresolved(&b->tree, i);
}

/* Connect the inode of a slot to its names and lists, or a former id to its inode. */
static int connect(struct inode_rebuild *b, uint32_t id)
{
	const struct node_slot *s = node_table_slot(b->tree.nodes, id);
	struct inode *i = node_table_object(b->tree.nodes, id);
	int r;

	if (!s || id == NODE_TABLE_ROOT)
		return 0;
	if (s->state == NODE_FORMER)
		return lead_former(b, id, s);
	if (!i)
		return -EAGAIN;
	r = name(b, i) ?: inode_list_unresolved(&b->tree, i);
	if (r == 0)
		inode_note_special_locked(&b->tree, i);
	return r == 0 && !s->nlookup ? doubt(b, id) : r;
}

static void drop_names(struct inode_table *inodes, struct inode *i)
{
	while (!list_is_empty(&i->names)) {
		struct name *n = container_of(i->names.next, struct name, of_inode);

		htab_remove(&inodes->names, &n->link);
		list_del(&n->of_inode);
		stats_memory_gives(STATS_MEM_INODES, n);
		n->parent->refs--;
		free(n);
	}
	i->links = INODE_ORPHAN;
}

static void disconnect(struct inode_rebuild *b, uint32_t id)
{
	struct inode *i = node_table_object(b->tree.nodes, id);
	struct inode_table *inodes = b->tree.inodes;

	if (!i || id == NODE_TABLE_ROOT)
		return;
	if (i->id != id) {
		inode_drop_former_locked(&b->tree, i, id);
		return;
	}
	drop_names(inodes, i);
	htab_remove(&inodes->unresolved, &i->by_lower);
	list_del(&i->special);
}

static bool is_the_same(const struct inode *i, const struct node_slot *s)
{
	return s && s->state != NODE_FORMER && s->generation == i->generation &&
	       s->type == i->type && s->ino == i->ino;
}

/* Make the inode of a changed slot again. Nothing refers to it. */
static int make_again(struct inode_rebuild *b, uint32_t id)
{
	const struct node_slot *s = node_table_slot(b->tree.nodes, id);
	struct inode *i = node_table_object(b->tree.nodes, id);

	if (i && is_the_same(i, s)) {
		i->given = inode_given_by_slot(s);
		return 0;
	}
	if (i) {
		if (i->refs || i->n_former || id == NODE_TABLE_ROOT)
			return -EAGAIN;
		node_table_set_object(b->tree.nodes, id, NULL);
		b->tree.inodes->n_unresolved--;
		inode_free(&b->tree, i);
	}
	return s && s->state != NODE_FORMER ? inode_make_unresolved(&b->tree, id) : 0;
}

/* ---- all, while requests are answered ---- */

static int make_one(struct inode_rebuild *b, struct union_fs *t, uint32_t id)
{
	const struct node_slot *s = node_table_slot(b->tree.nodes, id);

	(void)t;
	return s && s->state != NODE_FORMER ? inode_make_unresolved(&b->tree, id) : 0;
}

/* If a slot did not change, its name leads to the inode and directory that were there when
 * recording began. */
static int connect_one(struct inode_rebuild *b, struct union_fs *t, uint32_t id)
{
	return node_table_touch_has(t->nodes, id) ? 0 : connect(b, id);
}

/* Call fn for one batch, from *id on. A free slot has no object. */
static int each_of_batch(struct inode_rebuild *b, struct union_fs *t,
			 int (*fn)(struct inode_rebuild *b, struct union_fs *t, uint32_t id),
			 uint32_t *id)
{
	const uint32_t end = MIN(node_table_end(t->nodes), *id + SLOTS);
	unsigned n = 0;
	int r = 0;

	for (; r == 0 && n < BATCH && *id < end; (*id)++) {
		if (!node_table_object(t->nodes, *id))
			continue;
		r = fn(b, t, *id);
		n++;
	}
	return r;
}

static int each_slot(struct inode_rebuild *b, struct union_fs *t,
		     int (*fn)(struct inode_rebuild *b, struct union_fs *t, uint32_t id))
{
	uint32_t id = NODE_TABLE_ROOT;
	bool has_more = true;
	int r = 0;

	while (r == 0 && has_more) {
		mutex_lock(&t->inodes->lock);
		r = node_table_share_refresh(b->tree.nodes, t->nodes);
		r = r ?: each_of_batch(b, t, fn, &id);
		has_more = id < node_table_end(t->nodes);
		mutex_unlock(&t->inodes->lock);
		usleep(BREAK_US);
	}
	return r;
}

static int begin(struct inode_rebuild *b, struct union_fs *t)
{
	int r;

	LOCK_SCOPE(&t->inodes->lock);
	if (node_table_rollback(t->nodes)->stage != NODE_TABLE_STAYS || t->locks)
		return -EAGAIN;
	r = node_table_share(t->nodes, &b->tree.nodes);
	if (r < 0)
		return r;
	b->tree.inodes = inode_table_make();
	r = b->tree.inodes ? node_table_touch_begin(t->nodes) : -ENOMEM;
	if (r == 0) {
		htab_reserve(&b->tree.inodes->names, node_table_count(t->nodes));
		htab_reserve(&b->tree.inodes->unresolved, node_table_count(t->nodes));
	}
	return r == -EUCLEAN || r == -EBUSY ? -EAGAIN : r;
}

int inode_rebuild_begin(struct union_fs *t, struct inode_rebuild **ret)
{
	struct inode_rebuild *b = calloc(1, sizeof(*b));
	int r;

	*ret = NULL;
	if (!b)
		return -ENOMEM;
	r = begin(b, t);
	if (r == 0) {
		r = each_slot(b, t, make_one) ?: each_slot(b, t, connect_one);
		if (r < 0)
			inode_rebuild_cancel(t);
	}
	if (r < 0)
		inode_rebuild_free(b);
	else
		*ret = b;
	return r;
}

void inode_rebuild_cancel(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	node_table_touch_end(t->nodes);
}

/* ---- while requests wait ---- */

static int make_touched_again(struct inode_rebuild *b, struct union_fs *t)
{
	const uint32_t *ids;
	const ssize_t n = node_table_touch_list(t->nodes, &ids);
	int r = n < 0 ? (int)n : node_table_share_refresh(b->tree.nodes, t->nodes);

	if (r < 0)
		return r;
	for (ssize_t k = 0; k < n; k++)
		disconnect(b, ids[k]);
	for (ssize_t k = 0; k < n && r == 0; k++)
		r = make_again(b, ids[k]);
	for (ssize_t k = 0; k < n && r == 0; k++)
		r = connect(b, ids[k]) ?: doubt(b, ids[k]);
	return r;
}

struct held_list {
	struct inode_rebuild *b;
	struct union_fs *t;
	int error;
};

/* Called with the table's lock. */
static bool list_held(void *arg, struct inode *i)
{
	struct held_list *l = arg;
	struct inode_rebuild *b = l->b;
	const int fd = node_table_slot(l->t->nodes, i->id)->held_fd - 1;

	if (fd < 0 || i->has_copy || l->error)
		return false;
	l->error = array_reserve(&b->held, &b->cap_held, b->n_held + 1);
	if (!l->error)
		b->held[b->n_held++] = (struct held){ i->id, fd };
	return false;
}

static int list_all_held(struct inode_rebuild *b, struct union_fs *t)
{
	struct held_list l = { b, t, 0 };

	inode_each_special(t, list_held, &l);
	return l.error;
}

/* Without names, these files and their directories may have no user. */
static int list_copied(struct inode_rebuild *b, struct union_fs *t)
{
	int r = 0;

	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT + 1; r == 0 && id < node_table_end(t->nodes); id++) {
		const struct inode *i = node_table_object(t->nodes, id);
		uint32_t parent = 0;
		const char *name;

		if (!i || i->id != id || !i->has_copy)
			continue;
		node_table_name(t->nodes, id, &parent, &name);
		r = array_reserve(&b->copied, &b->cap_copied, b->n_copied + 1) ?: doubt(b, id);
		r = r ?: parent > NODE_TABLE_ROOT ? doubt(b, parent) : 0;
		if (r == 0)
			b->copied[b->n_copied++] =
				(struct held){ id, node_table_slot(t->nodes, id)->held_fd - 1 };
	}
	return r;
}

static void let_go(struct union_fs *t, const struct held *h)
{
	struct inode *i = node_table_object(t->nodes, h->id);

	if (fd_cache_steal(&i->src.fd) != h->fd)
		log_error("a descriptor of a file without a name is lost");
	if (i->is_held)
		fd_cache_unhold(&t->held);
	i->is_held = false;
}

int inode_rebuild_leave(struct inode_rebuild *b, struct union_fs *t)
{
	struct inode_table *inodes;
	int r;

	if (node_table_rollback(t->nodes)->stage == NODE_TABLE_WENT_BACK)
		return -EAGAIN;
	mutex_lock(&t->inodes->lock);
	r = make_touched_again(b, t);
	mutex_unlock(&t->inodes->lock);
	r = r ?: list_all_held(b, t) ?: list_copied(b, t);
	if (r < 0)
		return r;
	for (size_t k = 0; k < b->n_held; k++)
		let_go(t, &b->held[k]);
	node_table_touch_end(t->nodes);
	node_table_share_swap(t->nodes, b->tree.nodes);
	inodes = steal_ptr(&t->inodes);
	inode_table_end(t);
	b->inodes = b->tree.inodes;
	b->tree.inodes = inodes;
	b->nodes = steal_ptr(&t->nodes);
	return 0;
}

/* Keep the inode pinned, as in the server before: nothing else leads to its object. */
static void hold(struct union_fs *t, const struct held *h)
{
	struct inode *i = node_table_object(t->nodes, h->id);
	struct node_slot *s = node_table_slot(t->nodes, h->id);
	struct stat st;

	if (!s->upper_ino && fstat(h->fd, &st) == 0) {
		s->upper_ino = st.st_ino;
		htab_remove(&t->inodes->unresolved, &i->by_lower);
		/* This cannot fail: the table has buckets. */
		(void)inode_list_unresolved(t, i);
	}
	fd_cache_fill(&i->src.fd, h->fd);
	quota_note(t->quota, h->fd);
	/* Without a share the descriptor is kept but not counted. */
	i->is_held = fd_cache_hold(&t->held) == 0;
	inode_note_special_locked(t, i);
}

/* After a rollback the inode stands for its descriptor's object, and another file may have its
 * name. An inode without a name has its descriptor in any case. */
static void part(struct union_fs *t, const struct held *h)
{
	struct inode *i = node_table_object(t->nodes, h->id);

	/* Its slot may have had the descriptor when the inode was made. */
	list_del(&i->special);
	if (inode_rollback_is_unsaid(t))
		drop_names(t->inodes, i);
	if (node_table_slot(t->nodes, h->id)->held_fd)
		hold(t, h);
	else
		inode_note_special_locked(t, i);
}

int inode_rebuild_attach(struct inode_rebuild *b, struct union_fs *t)
{
	int r;

	t->nodes = b->nodes;
	r = inode_rollback_settle(t);
	if (r < 0) {
		t->nodes = NULL;
		return r;
	}
	b->nodes = NULL;
	t->inodes = steal_ptr(&b->inodes);
	inode_table_prepare(t);
	inode_table_number_alike(t);
	t->root = node_table_object(t->nodes, NODE_TABLE_ROOT);
	mutex_lock(&t->inodes->lock);
	for (size_t k = 0; k < b->n_held; k++)
		hold(t, &b->held[k]);
	for (size_t k = 0; k < b->n_copied; k++)
		part(t, &b->copied[k]);
	mutex_unlock(&t->inodes->lock);
	for (size_t k = 0; k < b->n_doubtful; k++) {
		struct inode *i = node_table_object(t->nodes, b->doubtful[k]);

		if (i && i->id == b->doubtful[k])
			inode_drop_unheld(t, i);
	}
	return 0;
}

bool inode_rebuild_has_left(const struct inode_rebuild *b)
{
	return b && b->nodes;
}

void inode_rebuild_give_up(struct inode_rebuild *b, int *ret_slots, int *ret_names)
{
	struct union_fs t = { .nodes = steal_ptr(&b->nodes), .inodes = steal_ptr(&b->inodes) };

	inode_table_free_objects(&t);
	node_table_leave(t.nodes, ret_slots, ret_names);
}

void inode_rebuild_free(struct inode_rebuild *b)
{
	if (!b)
		return;
	if (b->tree.inodes)
		inode_table_free_objects(&b->tree);
	if (b->tree.nodes)
		node_table_share_free(b->tree.nodes);
	free(b->held);
	free(b->copied);
	free(b->doubtful);
	free(b);
}
