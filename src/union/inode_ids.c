// SPDX-License-Identifier: Apache-2.0
/* Node ids of an inode. The slot of each former id names the current id, not the next former one,
 * which may be freed earlier. */
#include "inode-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/union/upper_dir.h"

void inode_release_id_locked(struct union_fs *t, uint32_t id)
{
	if (t->backing)
		t->backing_hooks->detach(t->backing, node_table_slot(t->nodes, id));
	node_table_release(t->nodes, id);
}

int inode_add_former_locked(struct union_fs *t, struct inode *i, uint32_t id)
{
	if (array_grow(&i->former, i->n_former) < 0)
		return -ENOMEM;
	i->former[i->n_former++] = id;
	node_table_set_object(t->nodes, id, i);
	node_table_slot(t->nodes, id)->successor = i->id;
	return 0;
}

void inode_drop_former_locked(struct union_fs *t, struct inode *i, uint32_t id)
{
	uint32_t k = 0;

	while (i->former[k] != id)
		k++;
	i->former[k] = i->former[i->n_former - 1];
	i->n_former--;
	node_table_set_object(t->nodes, id, NULL);
}

static void lead_former_locked(struct union_fs *t, const struct inode *i)
{
	for (uint32_t k = 0; k < i->n_former; k++) {
		node_table_slot(t->nodes, i->former[k])->successor = i->id;
		node_table_touch(t->nodes, i->former[k]);
	}
}

int inode_renumber(struct union_fs *t, struct inode *i, uint32_t id)
{
	struct node_slot *old, *new;
	uint32_t fresh;
	int r;

	LOCK_SCOPE(&t->inodes->lock);
	if (i->id != id)
		return 0;
	if (array_grow(&i->former, i->n_former) < 0)
		return -ENOMEM;
	r = node_table_alloc(t->nodes, &fresh);
	if (r < 0)
		return r;
	old = node_table_slot(t->nodes, id);
	new = node_table_slot(t->nodes, fresh);
	new->ino = old->ino;
	new->upper_ino = old->upper_ino;
	new->type = old->type;
	new->is_successor = true;
	new->is_mapped_past_us = old->is_mapped_past_us;
	node_table_set_state(new, old->state);
	if (!list_is_empty(&i->names)) {
		struct name *n = container_of(i->names.next, struct name, of_inode);

		r = node_table_set_name(t->nodes, fresh, n->parent->id, n->name);
		if (r < 0) {
			node_table_release(t->nodes, fresh);
			return r;
		}
	}
	node_table_set_object(t->nodes, fresh, i);
	i->generation = new->generation;
	i->id = fresh;
	old->successor = fresh;
	node_table_set_state(old, NODE_FORMER);
	/* As long as both slots hold the descriptor, they count as one. */
	new->held_fd = old->held_fd;
	old->held_fd = 0;
	lead_former_locked(t, i);
	if (!old->nlookup) {
		inode_release_id_locked(t, id);
		return 0;
	}
	node_table_clear_name(t->nodes, id);
	i->former[i->n_former++] = id;
	INVARIANTS(inode_check_invariants(t, i));
	return 0;
}

static bool is_registered_locked(struct union_fs *t, uint32_t id)
{
	return t->backing_hooks->is_registered(t->backing, node_table_slot(t->nodes, id));
}

bool inode_is_backed(struct union_fs *t, struct inode *i)
{
	bool is_backed;

	if (!t->backing)
		return false;
	LOCK_SCOPE(&t->inodes->lock);
	is_backed = is_registered_locked(t, i->id);
	for (uint32_t k = 0; k < i->n_former && !is_backed; k++)
		is_backed = is_registered_locked(t, i->former[k]);
	return is_backed;
}
