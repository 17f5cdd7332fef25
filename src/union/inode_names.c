// SPDX-License-Identifier: Apache-2.0
/* Names and their inodes, all under the table's lock. */
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/stats.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define name_of_link(l) container_of(l, struct name, of_inode)

static uint64_t name_hash(const struct inode *parent, const char *name)
{
	return hash_key(name, strlen(name), parent->id);
}

static struct name *find_locked(struct union_fs *t, const struct inode *parent, const char *name)
{
	for (struct hlink *l = htab_first(&t->inodes->names, name_hash(parent, name)); l;
	     l = htab_next(l)) {
		struct name *n = container_of(l, struct name, link);

		if (n->parent == parent && !strcmp(n->name, name))
			return n;
	}
	return NULL;
}

static void *take_spare_name_locked(struct union_fs *t)
{
	void *n = NULL;

	for (size_t k = 0; k < INODE_TABLE_SPARE_NAMES && !n; k++)
		n = steal_ptr(&t->inodes->spare_names[k]);
	return n;
}

int inode_link_name(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		    size_t len)
{
	struct name *n = malloc(sizeof(*n) + len + 1) ?: take_spare_name_locked(t);

	if (!n)
		return -ENOMEM;
	memcpy(n->name, name, len);
	n->name[len] = '\0';
	n->parent = parent;
	n->inode = i;
	if (htab_insert(&t->inodes->names, &n->link, name_hash(parent, n->name)) < 0) {
		free(n);
		return -ENOMEM;
	}
	stats_memory_took(STATS_MEM_INODES, n);
	list_add_tail(&i->names, &n->of_inode);
	parent->refs++;
	return 0;
}

static int add_name_locked(struct union_fs *t, struct inode *i, struct inode *parent,
			   const char *name)
{
	int r = inode_link_name(t, i, parent, name, strlen(name));

	if (r < 0)
		return r;
	if (node_table_set_name(t->nodes, i->id, parent->id, name) < 0) {
		struct name *n = name_of_link(i->names.prev);

		htab_remove(&t->inodes->names, &n->link);
		list_del(&n->of_inode);
		stats_memory_gives(STATS_MEM_INODES, n);
		free(n);
		parent->refs--;
		return -ENOMEM;
	}
	i->links = INODE_NAMED;
	node_table_set_state(node_table_slot(t->nodes, i->id),
			     i->has_upper ? NODE_UPPER : NODE_LOWER);
	return 0;
}

int inode_enter(struct union_fs *t, struct inode *parent, const char *name,
		const struct inode_found *found, struct inode **ret)
{
	struct hlink *free_list = NULL;
	struct inode *i = NULL;
	struct name *n;
	int r = 0;

	mutex_lock(&t->inodes->lock);
	n = find_locked(t, parent, name);
	if (n && n->inode->stage == INODE_RESOLVED) {
		i = n->inode;
	} else if (found->dir_version && found->dir_version != inode_dir_version(parent)) {
		r = -EAGAIN;
	} else if (n) {
		i = n->inode;
		/* If it was another object, restore_inode handles it. */
		r = inode_resolve_named_locked(t, i, found);
		r = r == -ESTALE ? -EAGAIN : r;
	} else {
		/* Ignore the link count: the known one of two names may just have been unlinked. */
		if (found->has_upper && found->type != DT_DIR)
			i = inode_by_upper_locked(t, found);
		if (found->is_linked_below)
			i = inode_by_lower_locked(t, found->lower);
		if (!i)
			i = inode_make_locked(t, found);
		r = i ? add_name_locked(t, i, parent, name) : -ENOMEM;
	}
	if (r == 0) {
		node_table_set_object(t->nodes, i->id, i);
		i->refs++;
		*ret = i;
	} else if (i) {
		inode_unlink_dead_locked(t, i, &free_list);
	}
	INVARIANTS(inode_check_invariants(t, r == 0 ? i : NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
	return r;
}

bool inode_peek(struct union_fs *t, struct inode *parent, const char *name, struct inode **ret)
{
	struct name *n;

	LOCK_SCOPE(&t->inodes->lock);
	n = find_locked(t, parent, name);
	if (!n)
		return false;
	n->inode->refs++;
	*ret = n->inode;
	return true;
}

int inode_add_name(struct union_fs *t, struct inode *i, struct inode *parent, const char *name)
{
	int r;

	LOCK_SCOPE(&t->inodes->lock);
	r = add_name_locked(t, i, parent, name);
	INVARIANTS(inode_check_invariants(t, i));
	return r;
}

/* unresolved_path: the path of an unresolved inode in the image. */
static void orphan_check_locked(struct union_fs *t, struct inode *i, const char *unresolved_path)
{
	if (list_is_empty(&i->names)) {
		inode_note_orphan_locked(t, i, unresolved_path);
	} else {
		struct name *n = name_of_link(i->names.next);

		node_table_set_name(t->nodes, i->id, n->parent->id, n->name);
	}
}

static char *unresolved_path_of(const struct name *n)
{
	_cleanup_(freep) char *dir = NULL;
	char *path;

	if (n->inode->stage == INODE_RESOLVED || n->parent->stage != INODE_RESOLVED ||
	    !n->parent->lower)
		return NULL;
	dir = image_path(n->parent->lower);
	return dir && asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", n->name) >= 0 ? path : NULL;
}

static void drop_name_locked(struct union_fs *t, struct inode *parent, const char *name,
			     struct hlink **free_list)
{
	struct name *n = find_locked(t, parent, name);
	_cleanup_(freep) char *path = n ? unresolved_path_of(n) : NULL;
	struct inode *i;

	if (!n)
		return;
	i = n->inode;
	i->refs++;
	/* The directory's slot must not be free while the child's slot names it: the server may die
	 * in between. */
	parent->refs++;
	inode_remove_name_locked(t, n, free_list);
	orphan_check_locked(t, i, path);
	inode_unref_locked(t, parent, free_list);
	inode_unref_locked(t, i, free_list);
}

void inode_drop_name(struct union_fs *t, struct inode *parent, const char *name)
{
	struct hlink *free_list = NULL;

	mutex_lock(&t->inodes->lock);
	drop_name_locked(t, parent, name, &free_list);
	INVARIANTS(inode_check_invariants(t, NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
}

int inode_move_name(struct union_fs *t, struct inode *old_parent, const char *old_name,
		    struct inode *parent, const char *name)
{
	struct hlink *free_list = NULL;
	struct inode *i = NULL;
	struct name *n;
	int r = 0;

	mutex_lock(&t->inodes->lock);
	drop_name_locked(t, parent, name, &free_list);
	n = find_locked(t, old_parent, old_name);
	if (n) {
		i = n->inode;
		i->refs++;
		r = add_name_locked(t, i, parent, name);
		inode_remove_name_locked(t, n, &free_list);
		orphan_check_locked(t, i, NULL);
		inode_unref_locked(t, i, &free_list);
	}
	INVARIANTS(inode_check_invariants(t, NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
	return r;
}

int inode_swap_names(struct union_fs *t, struct inode *a_parent, const char *a,
		     struct inode *b_parent, const char *b)
{
	struct hlink *free_list = NULL;
	struct inode *ia = NULL, *ib = NULL;
	struct name *na, *nb;
	int r = 0;

	mutex_lock(&t->inodes->lock);
	na = find_locked(t, a_parent, a);
	nb = find_locked(t, b_parent, b);
	if (na) {
		ia = na->inode;
		ia->refs++;
		inode_remove_name_locked(t, na, &free_list);
	}
	if (nb) {
		ib = nb->inode;
		ib->refs++;
		inode_remove_name_locked(t, nb, &free_list);
	}
	if (ia)
		r = add_name_locked(t, ia, b_parent, b);
	if (ib && r == 0)
		r = add_name_locked(t, ib, a_parent, a);
	if (ia)
		orphan_check_locked(t, ia, NULL);
	if (ib)
		orphan_check_locked(t, ib, NULL);
	if (ia)
		inode_unref_locked(t, ia, &free_list);
	if (ib)
		inode_unref_locked(t, ib, &free_list);
	INVARIANTS(inode_check_invariants(t, NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
	return r;
}

int inode_any_name(struct union_fs *t, struct inode *i, struct inode **ret_parent,
		   char name[NAME_MAX + 1])
{
	struct name *n;

	LOCK_SCOPE(&t->inodes->lock);
	if (list_is_empty(&i->names))
		return -ENOENT;
	n = name_of_link(i->names.next);
	n->parent->refs++;
	*ret_parent = n->parent;
	strcpy(name, n->name);
	return 0;
}

/* ---- paths ---- */

char *inode_name_path(struct union_fs *t, struct inode *parent, const char *name)
{
	size_t len = strlen(name);
	struct inode *i;
	char *path, *p;

	LOCK_SCOPE(&t->inodes->lock);
	for (i = parent; !list_is_empty(&i->names); i = name_of_link(i->names.next)->parent)
		len += strlen(name_of_link(i->names.next)->name) + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	p = path + len - strlen(name);
	strcpy(p, name);
	for (i = parent; !list_is_empty(&i->names); i = name_of_link(i->names.next)->parent) {
		const char *part = name_of_link(i->names.next)->name;
		size_t n = strlen(part);

		*--p = '/';
		p -= n;
		memcpy(p, part, n);
	}
	return path;
}

char *inode_path(struct union_fs *t, struct inode *i)
{
	char name[NAME_MAX + 1];
	struct inode *parent;
	char *path;

	if (i == t->root)
		return strdup("/");
	if (inode_any_name(t, i, &parent, name) < 0)
		return strdup("(a removed file)");
	path = inode_name_path(t, parent, name);
	inode_unref(t, parent);
	return path;
}

void inode_note_partial(struct union_fs *t, struct inode *i)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (struct list_link *l = i->names.next; l != &i->names; l = l->next) {
		struct upper_dir *d =
			__atomic_load_n(&name_of_link(l)->parent->dir, __ATOMIC_ACQUIRE);

		if (d)
			upper_dir_touch(d);
	}
}
