// SPDX-License-Identifier: Apache-2.0
/* State that a killed server leaves, and its meaning to the next one:
 * 1. PREPARED and the chain lacks the snapshot: descriptors of named files are unneeded copies.
 * 2. PREPARED and the chain has it: likewise copies, and their inodes are orphans now.
 * 3. WENT_BACK: the slots are final, but names of orphans stay until the kernel knows. */
#include "veneer/union/inode_rollback.h"

#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/sys/mode_relax.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static void set_stage(struct union_fs *t, enum node_table_stage stage)
{
	__atomic_store_n(&node_table_rollback(t->nodes)->stage, (uint32_t)stage, __ATOMIC_SEQ_CST);
}

void inode_rollback_begin(struct union_fs *t, uint64_t kept)
{
	struct node_table_rollback *rb = node_table_rollback(t->nodes);

	LOCK_SCOPE(&t->inodes->lock);
	rb->kept[0] = (uint32_t)kept;
	rb->kept[1] = (uint32_t)(kept >> 32);
	set_stage(t, NODE_TABLE_PREPARED);
}

void inode_rollback_keep(struct union_fs *t, struct inode *i, int fd)
{
	LOCK_SCOPE(&t->inodes->lock);
	i->has_copy = true;
	node_table_slot(t->nodes, i->id)->held_fd = fd + 1;
}

char *inode_rollback_path(struct union_fs *t, struct inode *i)
{
	_cleanup_(freep) char *name = NULL;
	struct inode *dir = NULL;
	const char *text;
	uint32_t parent;
	size_t len;

	mutex_lock(&t->inodes->lock);
	len = node_table_name(t->nodes, i->id, &parent, &text);
	name = len ? strndup(text, len) : NULL;
	if (name && parent) {
		dir = node_table_object(t->nodes, parent);
		dir->refs++;
	}
	mutex_unlock(&t->inodes->lock);
	if (!dir)
		return steal_ptr(&name);
	text = inode_name_path(t, dir, name);
	inode_unref(t, dir);
	return (char *)text;
}

static void drop_copy(struct node_slot *s)
{
	int fd = s->held_fd - 1;

	s->held_fd = 0;
	close(fd);
}

void inode_rollback_cancel(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (!i || i->id != id || !i->has_copy)
			continue;
		i->has_copy = false;
		drop_copy(node_table_slot(t->nodes, id));
	}
	set_stage(t, NODE_TABLE_STAYS);
}

/* 1, 0 or -errno. */
static int chain_has(struct union_fs *t, uint64_t id)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	int r;

	if (!t->upper)
		return -EUCLEAN;
	MODE_RELAX_SCOPE(t->upper->rootfd, "");
	r = branch_dir_load(t->upper->rootfd, &c);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return branch_chain_by_id(&c, id) != NULL;
}

static bool is_copied(const struct node_slot *s)
{
	return s->type == DT_REG && s->held_fd &&
	       (s->state == NODE_LOWER || s->state == NODE_UPPER);
}

/* A directory is found by its number at its name: its upper number has changed, or it has none. */
static void go_back(struct node_slot *s)
{
	if (s->type == DT_DIR)
		s->upper_ino = 0;
	if (!is_copied(s))
		return;
	s->upper_ino = 0;
	node_table_set_state(s, NODE_ORPHAN);
}

int inode_rollback_settle(struct union_fs *t)
{
	const struct node_table_rollback *rb = node_table_rollback(t->nodes);
	int r;

	if (rb->stage != NODE_TABLE_PREPARED)
		return 0;
	r = chain_has(t, (uint64_t)rb->kept[1] << 32 | rb->kept[0]);
	if (r < 0)
		return r;
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct node_slot *s = node_table_slot(t->nodes, id);

		if (s && r)
			go_back(s);
		else if (s && is_copied(s))
			drop_copy(s);
	}
	set_stage(t, r ? NODE_TABLE_WENT_BACK : NODE_TABLE_STAYS);
	return 0;
}

bool inode_rollback_is_unsaid(struct union_fs *t)
{
	return node_table_rollback(t->nodes)->stage == NODE_TABLE_WENT_BACK;
}

void inode_rollback_each_name(struct union_fs *t,
			      void (*fn)(void *arg, uint32_t parent, const char *name, size_t len),
			      void *arg)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);
		const char *name;
		uint32_t parent;
		size_t len = i ? node_table_name(t->nodes, id, &parent, &name) : 0;

		if (len && parent)
			fn(arg, parent, name, len);
		/* The name in the slot is one of the inode's names. */
		if (!i || i->id != id || i->names.next == i->names.prev)
			continue;
		for (struct list_link *l = i->names.next; l != &i->names; l = l->next) {
			const struct name *n = container_of(l, struct name, of_inode);

			fn(arg, n->parent->id, n->name, strlen(n->name));
		}
	}
}

/* The name of an orphan is the one that it lost by the rollback. */
static void forget_name(struct union_fs *t, uint32_t id)
{
	const struct node_slot *s = node_table_slot(t->nodes, id);
	const char *name;
	uint32_t parent;

	if (s && s->state == NODE_ORPHAN && node_table_name(t->nodes, id, &parent, &name) && parent)
		node_table_clear_name(t->nodes, id);
}

void inode_rollback_end(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++)
		if (node_table_object(t->nodes, id))
			forget_name(t, id);
	set_stage(t, NODE_TABLE_STAYS);
}
