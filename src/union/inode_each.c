// SPDX-License-Identifier: Apache-2.0
#include "inode-internal.h"

#include "veneer/base/lock.h"

#include <dirent.h>

/* An inode enters the list when it becomes special. It leaves the list at the next walk over it, or
 * when it dies. */
static bool is_special(struct union_fs *t, const struct inode *i)
{
	return i->links != INODE_NAMED || i->given & INODE_GIVEN_MAPPING || i->sync_error ||
	       node_table_slot(t->nodes, i->id)->held_fd;
}

void inode_note_special_locked(struct union_fs *t, struct inode *i)
{
	if (list_is_empty(&i->special) && is_special(t, i))
		list_add_tail(&t->inodes->special, &i->special);
}

void inode_note_sync_error(struct union_fs *t, struct inode *i, int error)
{
	i->sync_error = error;
	LOCK_SCOPE(&t->inodes->lock);
	inode_note_special_locked(t, i);
}

void inode_each_special(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg)
{
	struct list_link *next;

	LOCK_SCOPE(&t->inodes->lock);
	for (struct list_link *l = t->inodes->special.next; l != &t->inodes->special; l = next) {
		struct inode *i = container_of(l, struct inode, special);

		next = l->next;
		if (!is_special(t, i))
			list_del(l);
		else if (fn(arg, i))
			i->refs++;
	}
}

void inode_each(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && fn(arg, i))
			i->refs++;
	}
}

int inode_each_slot(struct union_fs *t, int (*fn)(void *arg, struct node_slot *s), void *arg)
{
	int r = 0;

	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT; r == 0 && id < node_table_end(t->nodes); id++) {
		struct node_slot *s = node_table_slot(t->nodes, id);

		if (s)
			r = fn(arg, s);
	}
	return r;
}

/* Commit partial files of a dead server like those of this one. */
static bool may_be_partial_locked(struct union_fs *t, struct inode *i)
{
	if (i->type != DT_REG || i->stage == INODE_STALE)
		return false;
	return i->stage == INODE_UNRESOLVED ? node_table_slot(t->nodes, i->id)->upper_ino
					    : i->has_upper && i->src.id;
}

struct inode *inode_next_partial(struct union_fs *t, uint32_t *id)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (; *id < node_table_end(t->nodes); (*id)++) {
		struct inode *i = node_table_object(t->nodes, *id);

		if (i && may_be_partial_locked(t, i)) {
			i->refs++;
			(*id)++;
			return i;
		}
	}
	return NULL;
}
