// SPDX-License-Identifier: Apache-2.0
/* Turns an unresolved inode into a resolved or stale one in one step under the table's lock. So an
 * object never has two inodes, and a thread that sees an inode resolved sees all its fields. */
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"

#include <dirent.h>
#include <string.h>

#define name_of_link(l) container_of(l, struct name, of_inode)

uint64_t inode_unresolved_key(const struct node_slot *s)
{
	return s->upper_ino ? s->upper_ino : s->ino;
}

/* The inode number that a snapshot's entry has in its layer, which it also had in the upper. 0: the
 * entry is not of a snapshot. */
static uint64_t snapshot_ino(struct union_fs *t, const struct inode_found *f)
{
	struct layer *const *layers;

	if (f->has_upper || !f->lower)
		return 0;
	image_layers(t->image, &layers);
	return layers[f->lower->layer]->is_snapshot ? f->lower->d_ino : 0;
}

static bool is_what_it_was(struct union_fs *t, const struct inode *i, const struct inode_found *f)
{
	const struct node_slot *s = node_table_slot(t->nodes, i->id);

	if (f->type != i->type)
		return false;
	if (s->upper_ino)
		return (f->has_upper && f->upper_ino == s->upper_ino) ||
		       snapshot_ino(t, f) == s->upper_ino;
	/* A server may have copied it up and died before it recorded that. */
	return f->ino == i->ino || (f->has_upper && f->covered_ino && f->covered_ino == i->ino);
}

static void unlist_unresolved_locked(struct union_fs *t, struct inode *i)
{
	htab_remove(&t->inodes->unresolved, &i->by_lower);
	t->inodes->n_unresolved -= i->stage == INODE_UNRESOLVED;
}

/* Does another inode stand for the object already? */
static bool is_taken_locked(struct union_fs *t, const struct inode_found *f)
{
	return f->type != DT_DIR && ((f->has_upper && inode_by_upper_locked(t, f)) ||
				     (f->is_linked_below && inode_by_lower_locked(t, f->lower)));
}

/* 0; -ENOMEM: the inode is unresolved as before. */
static int fill_locked(struct union_fs *t, struct inode *i, const struct inode_found *f)
{
	struct node_slot *s = node_table_slot(t->nodes, i->id);
	const bool was_listed = i->stage == INODE_UNRESOLVED;

	unlist_unresolved_locked(t, i);
	if (f->is_linked_below &&
	    htab_insert(&t->inodes->by_lower, &i->by_lower, inode_lower_hash(f->lower)) < 0) {
		/* This cannot fail: the table has buckets. */
		if (was_listed)
			(void)htab_insert(&t->inodes->unresolved, &i->by_lower,
					  inode_unresolved_key(s));
		t->inodes->n_unresolved += was_listed;
		return -ENOMEM;
	}
	i->is_linked_below = f->is_linked_below;
	inode_take_found(i, f);
	s->upper_ino = f->has_upper ? f->upper_ino : 0;
	node_table_touch(t->nodes, i->id);
	if (f->has_upper)
		inode_enter_by_upper_locked(t, i);
	if (!inode_is_orphan(i))
		node_table_set_state(s, f->has_upper ? NODE_UPPER : NODE_LOWER);
	i->stage = INODE_RESOLVED;
	return 0;
}

int inode_resolve_named_locked(struct union_fs *t, struct inode *i, const struct inode_found *f)
{
	return i->stage == INODE_STALE || !is_what_it_was(t, i, f) || is_taken_locked(t, f)
		       ? -ESTALE
		       : fill_locked(t, i, f);
}

struct inode *inode_find_unresolved(struct union_fs *t, const struct inode_found *f)
{
	const uint64_t keys[] = { f->upper_ino, f->ino, f->covered_ino, snapshot_ino(t, f) };

	LOCK_SCOPE(&t->inodes->lock);
	for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++)
		for (struct hlink *l = keys[k] ? htab_first(&t->inodes->unresolved, keys[k]) : NULL;
		     l; l = htab_next(l)) {
			struct inode *i = container_of(l, struct inode, by_lower);

			if (i->type == f->type) {
				i->refs++;
				return i;
			}
		}
	return NULL;
}

static void drop_names_locked(struct union_fs *t, struct inode *i, struct hlink **free_list)
{
	while (!list_is_empty(&i->names))
		inode_remove_name_locked(t, name_of_link(i->names.next), free_list);
	inode_note_nameless_locked(t, i);
}

int inode_resolve(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		  const struct inode_found *f)
{
	struct name *n = NULL;

	LOCK_SCOPE(&t->inodes->lock);
	if (i->stage == INODE_RESOLVED)
		return 0;
	if (!list_is_empty(&i->names))
		n = name_of_link(i->names.next);
	if (!n || n->parent != parent || strcmp(n->name, name) != 0 ||
	    f->dir_version != inode_dir_version(parent))
		return -EAGAIN;

	int r = inode_resolve_named_locked(t, i, f);

	INVARIANTS(inode_check_invariants(t, i));
	return r;
}

int inode_resolve_orphan(struct union_fs *t, struct inode *i, const struct inode_found *f,
			 bool is_gone)
{
	struct hlink *free_list = NULL;
	int r = 0;

	mutex_lock(&t->inodes->lock);
	if (i->stage != INODE_RESOLVED) {
		r = is_taken_locked(t, f) ? -ESTALE : fill_locked(t, i, f);
		if (r == 0) {
			i->links = is_gone ? INODE_GONE : INODE_ORPHAN;
			inode_note_special_locked(t, i);
			/* Record it first: dropping a name may free its directory's slot, which
			 * must not be free before. */
			inode_note_orphan_locked(t, i, NULL);
			drop_names_locked(t, i, &free_list);
		}
	}
	INVARIANTS(inode_check_invariants(t, i));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
	return r;
}

void inode_mark_stale(struct union_fs *t, struct inode *i)
{
	struct hlink *free_list = NULL;

	mutex_lock(&t->inodes->lock);
	if (i->stage == INODE_UNRESOLVED) {
		unlist_unresolved_locked(t, i);
		i->stage = INODE_STALE;
		inode_note_orphan_locked(t, i, NULL);
		drop_names_locked(t, i, &free_list);
	}
	INVARIANTS(inode_check_invariants(t, i));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
}
