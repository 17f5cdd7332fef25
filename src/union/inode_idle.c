// SPDX-License-Identifier: Apache-2.0
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#define SCAN_SLOTS 16384u /* per lock hold */

size_t inode_count(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	return node_table_count(t->nodes);
}

size_t inode_count_unresolved(struct union_fs *t)
{
	return t->inodes->n_unresolved;
}

uint32_t inode_end(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	return node_table_end(t->nodes);
}

/* A nameless inode is in use, and the kernel never gives the root back. */
static bool may_be_idle(const struct node_slot *s)
{
	return s && s->nlookup && (s->state == NODE_LOWER || s->state == NODE_UPPER);
}

size_t inode_list_idle(struct union_fs *t, uint32_t *from, uint64_t *ret_ids, size_t max)
{
	uint32_t end, id = *from > NODE_TABLE_ROOT ? *from : NODE_TABLE_ROOT + 1;
	size_t n = 0;

	LOCK_SCOPE(&t->inodes->lock);
	end = node_table_end(t->nodes);
	for (uint32_t k = 0; k < SCAN_SLOTS && id < end && n < max; k++, id++)
		if (node_table_object(t->nodes, id) && may_be_idle(node_table_slot(t->nodes, id)))
			ret_ids[n++] = id;
	*from = id < end ? id : 0;
	return n;
}
