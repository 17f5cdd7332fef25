// SPDX-License-Identifier: Apache-2.0
/* Invariants, all under the table's lock:
 * 1. An inode lives while the kernel owes lookups for it, it has refs, or it is the root.
 * 2. A struct name holds a reference on its parent, and none on its inode: an inode that dies
 *    removes its names.
 * 3. An inode without names, except the root, is an orphan; its slot says so.
 * 4. A regular file may have former node ids: while the kernel owes lookups for one, its slot leads
 *    to the inode and names the id that replaced it. */
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/union/locks.h"
#include "veneer/union/quota.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define name_of_link(l) container_of(l, struct name, of_inode)

int inode_reserve(struct union_fs *t)
{
	bool is_there;

	LOCK_SCOPE(&t->inodes->lock);
	if (!t->inodes->spare_inode)
		t->inodes->spare_inode = calloc(1, sizeof(struct inode));
	is_there = t->inodes->spare_inode != NULL;
	for (size_t k = 0; k < INODE_TABLE_SPARE_NAMES; k++) {
		if (!t->inodes->spare_names[k])
			t->inodes->spare_names[k] = malloc(sizeof(struct name) + NAME_MAX + 1);
		is_there = is_there && t->inodes->spare_names[k];
	}
	return is_there ? 0 : -ENOMEM;
}

static void free_spares(struct union_fs *t)
{
	free(steal_ptr(&t->inodes->spare_inode));
	for (size_t k = 0; k < INODE_TABLE_SPARE_NAMES; k++)
		free(steal_ptr(&t->inodes->spare_names[k]));
}

struct inode *inode_for_slot(struct union_fs *t, uint32_t id)
{
	const struct node_slot *s = node_table_slot(t->nodes, id);
	struct inode *i = calloc(1, sizeof(*i)) ?: steal_ptr(&t->inodes->spare_inode);
	pthread_rwlockattr_t attr;

	if (!i)
		return NULL;
	i->id = id;
	stats_memory_took(STATS_MEM_INODES, i);
	i->type = s->type;
	i->generation = s->generation;
	i->ino = s->ino;
	list_init(&i->names);
	list_init(&i->special);
	pthread_rwlockattr_init(&attr);
	/* A stream of readers must not starve the first write. */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&i->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	return i;
}

static struct inode *inode_alloc_locked(struct union_fs *t, uint8_t type)
{
	struct inode *i;
	uint32_t id;

	if (node_table_alloc(t->nodes, &id) < 0)
		return NULL;
	node_table_slot(t->nodes, id)->type = type;
	i = inode_for_slot(t, id);
	if (!i)
		node_table_release(t->nodes, id);
	else if (t->on_grown && node_table_count(t->nodes) % UNION_FS_GROWN_STEP == 0)
		t->on_grown();
	return i;
}

static bool is_dead(struct union_fs *t, const struct inode *i)
{
	return i != t->root && !i->refs && !i->n_former &&
	       !node_table_slot(t->nodes, i->id)->nlookup;
}

/* Chained by by_upper.next: no lookup finds a dying inode by it any more. */
static void push_dying(struct union_fs *t, struct inode *i, struct hlink **list)
{
	list_del(&i->special);
	htab_remove(&t->inodes->by_upper, &i->by_upper);
	if (i->stage != INODE_RESOLVED)
		htab_remove(&t->inodes->unresolved, &i->by_lower);
	else if (i->is_linked_below)
		htab_remove(&t->inodes->by_lower, &i->by_lower);
	if (i->stage == INODE_UNRESOLVED)
		t->inodes->n_unresolved--;
	i->by_upper.next = *list;
	*list = &i->by_upper;
}

/* Dead inodes are unlinked under the lock and freed without it: freeing closes descriptors. A dying
 * inode may drop the last reference of its directory, and so on upwards; a loop instead of
 * recursion, since a container decides the depth. */
void inode_unlink_dead_locked(struct union_fs *t, struct inode *i, struct hlink **free_list)
{
	struct hlink *dying = NULL;

	if (!is_dead(t, i))
		return;
	push_dying(t, i, &dying);
	while (dying) {
		i = container_of(dying, struct inode, by_upper);
		dying = dying->next;
		while (!list_is_empty(&i->names)) {
			struct name *n = name_of_link(i->names.next);
			struct inode *parent = n->parent;

			htab_remove(&t->inodes->names, &n->link);
			list_del(&n->of_inode);
			stats_memory_gives(STATS_MEM_INODES, n);
			free(n);
			parent->refs--;
			if (is_dead(t, parent))
				push_dying(t, parent, &dying);
		}
		inode_release_id_locked(t, i->id);
		i->by_upper.next = *free_list;
		*free_list = &i->by_upper;
	}
}

void inode_unref_locked(struct union_fs *t, struct inode *i, struct hlink **free_list)
{
	i->refs--;
	inode_unlink_dead_locked(t, i, free_list);
}

void inode_remove_name_locked(struct union_fs *t, struct name *n, struct hlink **free_list)
{
	struct inode *parent = n->parent;

	htab_remove(&t->inodes->names, &n->link);
	list_del(&n->of_inode);
	stats_memory_gives(STATS_MEM_INODES, n);
	free(n);
	inode_unref_locked(t, parent, free_list);
}

void inode_free(struct union_fs *t, struct inode *i)
{
	/* Drop the descriptor before the share: a thread that waits for a share
	 * (op_data_waits_for_room) needs the descriptor closed. */
	fd_cache_drop(&i->src.fd);
	if (i->is_held)
		fd_cache_unhold(&t->held);
	upper_dir_free(i->dir);
	free(i->former);
	pthread_rwlock_destroy(&i->lock);
	stats_memory_gives(STATS_MEM_INODES, i);
	free(i);
}

/* Remove the map entry of an unlinked partial file, which no program can read any more. */
static void forget_bytes(struct union_fs *t, struct inode *i)
{
	struct partial_xattr mark = { .file_id = i->src.id };
	bool is_gone = i->links == INODE_GONE;
	struct stat st;

	/* For an inode that was not used since a server died, only its held descriptor is known. */
	if (i->stage != INODE_RESOLVED && i->src.fd.fd_plus_one && t->map && i->type == DT_REG) {
		const int fd = i->src.fd.fd_plus_one - 1;

		is_gone = inode_is_orphan(i) && fstat(fd, &st) == 0 && st.st_nlink == 0 &&
			  source_read_mark(fd, "", &mark, NULL) == 1;
	}
	if (is_gone && mark.file_id)
		mapfile_file_gone(t->map, mark.file_id);
	quota_drop(t, i);
}

void inode_free_unlinked(struct union_fs *t, struct hlink *free_list)
{
	if (t->backing)
		t->backing_hooks->reap(t->backing);
	while (free_list) {
		struct inode *i = container_of(free_list, struct inode, by_upper);

		free_list = free_list->next;
		/* Forgotten inodes have no locks, unless the kernel did not report a release. */
		if (t->locks)
			locks_forget(t->locks, (uint64_t)(uintptr_t)i);
		forget_bytes(t, i);
		inode_free(t, i);
	}
}

/* Layers and image number devices alike, as long as only the layers' own occur. */
static void number_devices(struct union_fs *t)
{
	struct layer *const *layers;
	size_t n = image_layers(t->image, &layers);

	xino_init(&t->devs);
	for (unsigned pass = 0; pass < 2; pass++)
		for (size_t k = 0; k < n; k++)
			if (layers[k]->is_snapshot == pass)
				xino_index(&t->devs, layers[k]->dev);
	if (t->upper)
		xino_index(&t->devs, t->upper->dev);
}

uint64_t inode_fold_ino(struct union_fs *t, dev_t dev, ino_t ino)
{
	return xino_fold(xino_index(&t->devs, dev), ino);
}

/* Record devices, so that a later server that meets them in another order numbers them alike. */
static void note_devices_locked(struct union_fs *t)
{
	struct xino *const from[] = { [NODE_TABLE_OF_TREE] = &t->devs,
				      [NODE_TABLE_OF_IMAGE] = image_inner_mounts(t->image) };

	for (unsigned place = 0; place < NODE_TABLE_PLACES; place++) {
		const unsigned n = atomic_load_explicit(&from[place]->n, memory_order_acquire);

		for (unsigned k = node_table_devs(t->nodes, place)->n; k < n; k++)
			node_table_note_dev(t->nodes, place, from[place]->devs[k]);
	}
}

struct inode_table *inode_table_make(void)
{
	struct inode_table *inodes = calloc(1, sizeof(*inodes));

	if (!inodes)
		return NULL;
	mutex_init(&inodes->lock);
	list_init(&inodes->special);
	return inodes;
}

void inode_table_prepare(struct union_fs *t)
{
	number_devices(t);
	mutex_init(&t->import_lock);
	for (size_t k = 0; k < UNION_FS_SETID_LOCKS; k++)
		mutex_init(&t->setid_locks[k]);
}

int inode_table_init(struct union_fs *t)
{
	int r = node_table_new(&t->nodes);

	if (r < 0)
		return r;
	t->inodes = inode_table_make();
	if (t->inodes) {
		inode_table_prepare(t);
		t->root = inode_alloc_locked(t, DT_DIR);
	}
	if (!t->root) {
		inode_table_release(t);
		return -ENOMEM;
	}
	node_table_set_object(t->nodes, t->root->id, t->root);
	return 0;
}

static void drop_name(struct hlink *l, void *arg)
{
	struct name *n = container_of(l, struct name, link);

	(void)arg;
	stats_memory_gives(STATS_MEM_INODES, n);
	free(n);
}

/* forgets: also remove map entries of unlinked files from the map. The slots may belong to another
 * table by now. */
static void free_all(struct union_fs *t, bool forgets)
{
	const uint32_t end = node_table_end(t->nodes);

	/* An inode with former ids is freed by its current id. */
	for (uint32_t id = NODE_TABLE_ROOT; id < end; id++) {
		const struct inode *i = node_table_object(t->nodes, id);

		if (i && i->id != id)
			node_table_set_object(t->nodes, id, NULL);
	}
	for (uint32_t id = NODE_TABLE_ROOT; id < end; id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && forgets)
			forget_bytes(t, i);
		if (i)
			inode_free(t, i);
	}
}

void inode_table_end(struct union_fs *t)
{
	xino_release(&t->devs);
	mutex_destroy(&t->import_lock);
	for (size_t k = 0; k < UNION_FS_SETID_LOCKS; k++)
		mutex_destroy(&t->setid_locks[k]);
}

static void release_objects(struct union_fs *t, bool forgets)
{
	free_spares(t);
	htab_drain(&t->inodes->names, drop_name, NULL);
	htab_release(&t->inodes->names);
	htab_release(&t->inodes->by_upper);
	htab_release(&t->inodes->by_lower);
	htab_release(&t->inodes->unresolved);
	free_all(t, forgets);
	mutex_destroy(&t->inodes->lock);
	free(steal_ptr(&t->inodes));
}

void inode_table_free_objects(struct union_fs *t)
{
	release_objects(t, false);
}

void inode_table_release(struct union_fs *t)
{
	if (t->inodes) {
		release_objects(t, true);
		inode_table_end(t);
	}
	node_table_free(t->nodes);
	t->nodes = NULL;
}

void inode_table_leave(struct union_fs *t, int *ret_slots, int *ret_names)
{
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);
		const struct node_slot *s = i && i->id == id ? node_table_slot(t->nodes, id) : NULL;

		/* The descriptor is missing if the inode could not be attached. */
		if (s && s->held_fd && !i->has_copy && i->src.fd.fd_plus_one &&
		    fd_cache_steal(&i->src.fd) != s->held_fd - 1)
			log_error("a descriptor of a file without a name is lost");
	}
	release_objects(t, false);
	inode_table_end(t);
	node_table_leave(t->nodes, ret_slots, ret_names);
	t->nodes = NULL;
}

void inode_ref(struct union_fs *t, struct inode *i)
{
	LOCK_SCOPE(&t->inodes->lock);
	i->refs++;
}

struct inode *inode_hold(struct union_fs *t, uint64_t id)
{
	struct inode *i;

	LOCK_SCOPE(&t->inodes->lock);
	i = inode_get(t, id);
	if (!i || i->stage != INODE_RESOLVED)
		return NULL;
	i->refs++;
	return i;
}

void inode_unref(struct union_fs *t, struct inode *i)
{
	struct hlink *free_list = NULL;

	mutex_lock(&t->inodes->lock);
	inode_unref_locked(t, i, &free_list);
	INVARIANTS(inode_check_invariants(t, NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
}

void inode_grant(struct union_fs *t, struct inode *i, uint32_t *ret_id, uint32_t *ret_generation)
{
	struct node_slot *s;

	LOCK_SCOPE(&t->inodes->lock);
	s = node_table_slot(t->nodes, i->id);
	if (!s->nlookup++)
		node_table_touch(t->nodes, i->id);
	i->refs--;
	*ret_id = i->id;
	*ret_generation = i->generation;
	INVARIANTS(inode_check_invariants(t, i));
}

void inode_forget(struct union_fs *t, uint64_t id, uint64_t n)
{
	struct hlink *free_list = NULL;
	struct node_slot *s;

	mutex_lock(&t->inodes->lock);
	s = node_table_slot(t->nodes, id);
	if (s) {
		struct inode *i = node_table_object(t->nodes, id);

		s->nlookup -= MIN(n, s->nlookup);
		if (!s->nlookup)
			node_table_touch(t->nodes, (uint32_t)id);
		if (i && i->id != id && !s->nlookup) {
			inode_drop_former_locked(t, i, (uint32_t)id);
			inode_release_id_locked(t, (uint32_t)id);
		}
		if (i)
			inode_unlink_dead_locked(t, i, &free_list);
	}
	INVARIANTS(inode_check_invariants(t, NULL));
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
}

struct node_slot *inode_slot(struct union_fs *t, uint64_t id)
{
	LOCK_SCOPE(&t->inodes->lock);
	return node_table_slot(t->nodes, id);
}

void inode_enter_by_upper_locked(struct union_fs *t, struct inode *i)
{
	htab_remove(&t->inodes->by_upper, &i->by_upper);
	/* Without memory, another name of the file gets its own inode. */
	if (i->type != DT_DIR)
		(void)htab_insert(&t->inodes->by_upper, &i->by_upper, i->upper_ino);
}

/* Find the inode that another name of this upper file may lead to. */
struct inode *inode_by_upper_locked(struct union_fs *t, const struct inode_found *f)
{
	for (struct hlink *l = htab_first(&t->inodes->by_upper, f->upper_ino); l;
	     l = htab_next(l)) {
		struct inode *i = container_of(l, struct inode, by_upper);

		if (i->upper_ino == f->upper_ino && i->upper_dev == f->upper_dev)
			return i;
	}
	return NULL;
}

uint64_t inode_lower_hash(const struct image_entry *e)
{
	return hash_key(&e->d_ino, sizeof(e->d_ino), 0);
}

/* All names of a hard-linked lower file are one inode from the start: copy-up cannot merge two. */
struct inode *inode_by_lower_locked(struct union_fs *t, struct image_entry *e)
{
	for (struct hlink *l = htab_first(&t->inodes->by_lower, inode_lower_hash(e)); l;
	     l = htab_next(l)) {
		struct inode *i = container_of(l, struct inode, by_lower);

		if (image_is_same_file(t->image, i->lower, e) > 0)
			return i;
	}
	return NULL;
}

void inode_take_found(struct inode *i, const struct inode_found *f)
{
	i->upper_ino = f->upper_ino;
	i->upper_dev = f->upper_dev;
	i->lower = f->lower;
	i->is_damaged = f->is_damaged;
	i->src.map = f->map;
	i->src.id = f->id;
	i->src.below = f->below;
	i->has_upper = f->has_upper;
}

struct inode *inode_make_locked(struct union_fs *t, const struct inode_found *f)
{
	struct inode *i = inode_alloc_locked(t, f->type);

	if (!i)
		return NULL;
	i->ino = f->ino;
	inode_take_found(i, f);
	node_table_slot(t->nodes, i->id)->ino = f->ino;
	node_table_slot(t->nodes, i->id)->upper_ino = f->upper_ino;
	note_devices_locked(t);
	if (f->has_upper)
		inode_enter_by_upper_locked(t, i);
	if (f->is_linked_below) {
		if (htab_insert(&t->inodes->by_lower, &i->by_lower, inode_lower_hash(f->lower)) <
		    0) {
			inode_release_id_locked(t, i->id);
			inode_free(t, i);
			return NULL;
		}
		i->is_linked_below = true;
	}
	return i;
}

void inode_drop_unheld(struct union_fs *t, struct inode *i)
{
	struct hlink *free_list = NULL;

	mutex_lock(&t->inodes->lock);
	inode_unlink_dead_locked(t, i, &free_list);
	mutex_unlock(&t->inodes->lock);
	inode_free_unlinked(t, free_list);
}

uint64_t inode_dir_version(struct inode *dir)
{
	struct upper_dir *d = __atomic_load_n(&dir->dir, __ATOMIC_ACQUIRE);

	return d ? upper_dir_version(d) + 2 : 1;
}

/* The image path by which a later server finds an inode without names, if the image has its bytes
 * or a part of them. */
static char *way_to_orphan(const struct inode *i)
{
	return i->lower && (!i->has_upper || i->src.id) ? image_path(i->lower) : NULL;
}

void inode_note_orphan_locked(struct union_fs *t, struct inode *i, const char *unresolved_path)
{
	_cleanup_(freep) char *path = i->stage == INODE_RESOLVED ? way_to_orphan(i) : NULL;
	const char *way = path ? path : unresolved_path;

	inode_note_nameless_locked(t, i);
	if (!way || node_table_set_name(t->nodes, i->id, 0, way) < 0)
		node_table_clear_name(t->nodes, i->id);
	node_table_set_state(node_table_slot(t->nodes, i->id), NODE_ORPHAN);
}

int inode_orphan_path(struct union_fs *t, uint32_t id, char ret[PATH_MAX])
{
	uint32_t parent;
	const char *path;
	size_t len;

	LOCK_SCOPE(&t->inodes->lock);
	len = node_table_name(t->nodes, id, &parent, &path);
	if (!len || parent || len >= PATH_MAX)
		return -ENOENT;
	memcpy(ret, path, len);
	ret[len] = '\0';
	return 0;
}

void inode_note_nameless_locked(struct union_fs *t, struct inode *i)
{
	if (i->links == INODE_NAMED)
		i->links = INODE_ORPHAN;
	inode_note_special_locked(t, i);
}

void inode_note_gone(struct union_fs *t, struct inode *i)
{
	LOCK_SCOPE(&t->inodes->lock);
	if (i->links == INODE_ORPHAN)
		i->links = INODE_GONE;
	INVARIANTS(inode_check_invariants(t, i));
}

void inode_expect_upper(struct union_fs *t, struct inode *i, ino_t upper_ino)
{
	LOCK_SCOPE(&t->inodes->lock);
	htab_remove(&t->inodes->by_upper, &i->by_upper);
	i->upper_ino = upper_ino;
	if (upper_ino)
		inode_enter_by_upper_locked(t, i);
}

void inode_set_upper(struct union_fs *t, struct inode *i, ino_t upper_ino)
{
	LOCK_SCOPE(&t->inodes->lock);
	i->upper_ino = upper_ino;
	i->has_upper = true;
	node_table_slot(t->nodes, i->id)->upper_ino = upper_ino;
	node_table_touch(t->nodes, i->id);
	if (!inode_is_orphan(i))
		node_table_set_state(node_table_slot(t->nodes, i->id), NODE_UPPER);
	inode_enter_by_upper_locked(t, i);
	INVARIANTS(inode_check_invariants(t, i));
}

/* ---- accessors ---- */

struct intent_object inode_for_intent(const struct inode *i)
{
	if (!i)
		return INTENT_NOTHING;
	return (struct intent_object){ i->id, i->ino, i->has_upper ? i->upper_ino : 0 };
}

bool inode_is_current(const struct inode *i, uint64_t id)
{
	return i->id == id;
}

bool inode_is_regular(const struct inode *i)
{
	return i->type == DT_REG;
}

bool inode_is_dir(const struct inode *i)
{
	return i->type == DT_DIR;
}

uint64_t inode_ino(const struct inode *i)
{
	return i->ino;
}

uint32_t inode_id(const struct inode *i)
{
	return i->id;
}

bool inode_changes_unheard(const struct inode *i, uint64_t id)
{
	return i->n_former || inode_is_mapped_past_us(i) || i->id != id;
}

bool inode_has_upper(const struct inode *i)
{
	return i->has_upper;
}

struct image_entry *inode_lower(const struct inode *i)
{
	return i->lower;
}

file_id_t inode_partial_id(const struct inode *i)
{
	return i->src.id;
}

bool inode_is_damaged(const struct inode *i)
{
	return i->is_damaged;
}

bool inode_is_lower_file(const struct inode *i)
{
	return i->type == DT_REG && !i->has_upper && i->stage == INODE_RESOLVED &&
	       i->links == INODE_NAMED && i->lower;
}

bool inode_is_merged_with(struct inode *dir, const struct image_entry *e)
{
	RDLOCK_SCOPE(&dir->lock);
	return dir->lower == e;
}

bool inode_try_lock_shared(struct inode *i) UNCHECKED_LOCKS
{
	return rwlock_tryrdlock(&i->lock);
}

void inode_unlock_shared(struct inode *i) UNCHECKED_LOCKS
{
	rwlock_unlock(&i->lock);
}

bool inode_is_resolved(const struct inode *i)
{
	return i->stage == INODE_RESOLVED;
}

bool inode_is_orphan(const struct inode *i)
{
	return i->links != INODE_NAMED;
}

bool inode_is_mapped_past_us(const struct inode *i)
{
	return i->given & INODE_GIVEN_MAPPING;
}

bool inode_is_listed_names_only(const struct inode *i)
{
	return i->given & INODE_GIVEN_NAMES;
}

void inode_note_listed_names_only(struct inode *dir)
{
	dir->given |= INODE_GIVEN_NAMES;
}

bool inode_is_changing(const struct inode *i)
{
	return i->changing;
}

bool inode_note_filled(struct inode *i)
{
	return !(atomic_fetch_or(&i->given, INODE_GIVEN_PAGES) & INODE_GIVEN_PAGES);
}

void inode_note_read(struct inode *i, uint64_t off, size_t len)
{
	read_pattern_note(&i->reads, off, len);
}

bool inode_is_read_at_random(const struct inode *i)
{
	return read_pattern_is_random(&i->reads);
}

uint32_t inode_writes(const struct inode *i)
{
	return i->nwrites;
}

bool inode_is_private(const struct inode *i)
{
	return i->given & INODE_GIVEN_OWN_ID;
}

void inode_note_private(struct inode *i)
{
	i->given |= INODE_GIVEN_OWN_ID;
}
