// SPDX-License-Identifier: Apache-2.0
/* The invariants of inode.c, of the inode that changed, and of a table of few ids all of them. Its
 * rules hold between two changes, under the table's lock. */
#include "inode-internal.h"

#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"

#include <dirent.h>
#include <string.h>

#define name_of_link(l) container_of(l, struct name, of_inode)

static bool is_listed(const struct inode_table *inodes, const struct name *n)
{
	const uint64_t hash = hash_key(n->name, strlen(n->name), n->parent->id);

	for (struct hlink *l = htab_first(&inodes->names, hash); l; l = htab_next(l))
		if (container_of(l, struct name, link) == n)
			return true;
	return false;
}

static const char *names_check(struct union_fs *t, struct inode *i)
{
	struct list_link *l = i->names.next;

	if (i != t->root && list_is_empty(&i->names) != (i->links != INODE_NAMED))
		return "inode: one without names, but for the root, is an orphan";
	for (unsigned k = 0; k < INVARIANTS_MAX && l != &i->names; k++, l = l->next) {
		const struct name *n = name_of_link(l);

		if (n->inode != i || !is_listed(t->inodes, n))
			return "inode: each of its names leads to it";
		if (n->parent->type != DT_DIR || !n->parent->refs)
			return "inode: a name holds a reference on its parent";
	}
	return NULL;
}

static const char *former_check(struct union_fs *t, const struct inode *i)
{
	for (uint32_t k = 0; k < i->n_former && k < INVARIANTS_MAX; k++) {
		const struct node_slot *s = node_table_slot(t->nodes, i->former[k]);

		if (!s || s->state != NODE_FORMER || s->successor != i->id || !s->nlookup ||
		    node_table_object(t->nodes, i->former[k]) != i)
			return "inode: a former id that the kernel holds leads to it";
	}
	return NULL;
}

static const char *inode_check(struct union_fs *t, struct inode *i)
{
	const struct node_slot *s = node_table_slot(t->nodes, i->id);
	const char *broken;

	if (!s || s->state == NODE_FORMER || node_table_object(t->nodes, i->id) != i)
		return "inode: its slot leads to it";
	if (s->generation != i->generation || s->type != i->type)
		return "inode: its slot says what it is";
	if (i != t->root && !i->refs && !i->n_former && !s->nlookup)
		return "inode: one lives while somebody needs it";
	/* A damaged table may say anything of the root, which is in no list. */
	if (i != t->root && list_is_empty(&i->special) &&
	    (i->links != INODE_NAMED || i->given & INODE_GIVEN_MAPPING ||
	     (s->held_fd && !i->has_copy)))
		return "inode: a special one is listed";
	broken = names_check(t, i);
	return broken ? broken : former_check(t, i);
}

/* nrefs: how many names have the inode of each id as parent. */
static const char *count_parents(const struct inode_table *inodes, uint32_t end, uint32_t *nrefs)
	REQUIRES(inodes->lock)
{
	for (size_t k = 0; k < inodes->names.nbuckets; k++)
		for (struct hlink *l = inodes->names.buckets[k]; l; l = l->next) {
			const uint32_t id = container_of(l, struct name, link)->parent->id;

			if (id >= end)
				return "inode: a parent has an id";
			nrefs[id]++;
		}
	return NULL;
}

static const char *all_check(struct union_fs *t) REQUIRES(t->inodes->lock)
{
	const uint32_t end = node_table_end(t->nodes);
	uint32_t nrefs[INVARIANTS_MAX] = { 0 };
	size_t nslots = 0, n_unresolved = 0;
	const char *broken = count_parents(t->inodes, end, nrefs);

	for (uint32_t id = NODE_TABLE_ROOT; id < end && !broken; id++) {
		struct inode *i = node_table_object(t->nodes, id);

		nslots += node_table_slot(t->nodes, id) != NULL;
		if (!i || i->id != id)
			continue;
		n_unresolved += i->stage == INODE_UNRESOLVED;
		broken = i->refs < nrefs[id] ? "inode: each name holds a reference on its parent"
					     : inode_check(t, i);
	}
	if (!broken && n_unresolved != t->inodes->n_unresolved)
		broken = "inode: the unresolved ones are counted";
	if (!broken && nslots != node_table_count(t->nodes))
		broken = "inode: the slots in use are counted";
	return broken;
}

const char *inode_check_invariants(struct union_fs *t, struct inode *i)
{
	const char *broken = i ? inode_check(t, i) : NULL;

	return broken || node_table_end(t->nodes) > INVARIANTS_MAX ? broken : all_check(t);
}
