// SPDX-License-Identifier: Apache-2.0
/* Makes unresolved inodes from the node table of a dead server, in memory only, so that many take
 * no time. Each is resolved at its first use (restore.h). */
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/union/inode_rollback.h"
#include "veneer/union/quota.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

/* ---- records for the next server ---- */

void inode_note_held(struct union_fs *t, struct inode *i, int fd)
{
	LOCK_SCOPE(&t->inodes->lock);
	node_table_slot(t->nodes, i->id)->held_fd = fd + 1;
	i->is_held = fd >= 0;
	inode_note_special_locked(t, i);
	INVARIANTS(inode_check_invariants(t, i));
}

void inode_note_mapped(struct union_fs *t, struct inode *i)
{
	LOCK_SCOPE(&t->inodes->lock);
	node_table_slot(t->nodes, i->id)->is_mapped_past_us = true;
	i->given |= INODE_GIVEN_MAPPING;
	node_table_touch(t->nodes, i->id);
	inode_note_special_locked(t, i);
	INVARIANTS(inode_check_invariants(t, i));
}

int inode_note_tied(struct union_fs *t, uint32_t id, int change)
{
	struct node_slot *s;
	int n;

	LOCK_SCOPE(&t->inodes->lock);
	s = node_table_slot(t->nodes, id);
	n = s ? s->n_tied + change : 0;
	if (n > UINT16_MAX)
		return -ENOLCK;
	/* A server that died in between may have recorded fewer. */
	if (s)
		s->n_tied = n < 0 ? 0 : (uint16_t)n;
	return 0;
}

unsigned inode_count_tied(struct union_fs *t, uint32_t id)
{
	const struct node_slot *s;

	LOCK_SCOPE(&t->inodes->lock);
	s = node_table_slot(t->nodes, id);
	return s ? s->n_tied : 0;
}

/* ---- held descriptors ---- */

/* Descriptors that an inode has got, a bit each, so that no two get the same. */
struct held {
	uint8_t *taken;
	size_t max;
};

static bool is_its_own(struct node_slot *s, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && IFTODT(st.st_mode) == s->type &&
	       (!s->upper_ino || s->upper_ino == st.st_ino);
}

/* Keep the inode pinned, as in the dead server: nothing else leads to its object. */
static void take_held(struct union_fs *t, struct held *h, struct inode *i, struct node_slot *s)
{
	const int fd = s->held_fd - 1;
	struct stat st;

	if (fd < 0 || (size_t)fd >= h->max || h->taken[fd / 8] & (1u << fd % 8) ||
	    !is_its_own(s, fd)) {
		s->held_fd = 0;
		return;
	}
	h->taken[fd / 8] |= (uint8_t)(1u << fd % 8);
	if (!s->upper_ino && fstat(fd, &st) == 0)
		s->upper_ino = st.st_ino;
	fd_cache_fill(&i->src.fd, fd);
	quota_note(t->quota, fd);
	/* Without a share the descriptor is kept but not counted. */
	i->is_held = fd_cache_hold(&t->held) == 0;
}

static int take_all_held(struct union_fs *t)
{
	struct rlimit rl = { .rlim_cur = 1 << 20 };
	_cleanup_(freep) uint8_t *taken = NULL;
	struct held h;

	getrlimit(RLIMIT_NOFILE, &rl);
	h.max = rl.rlim_cur < INT_MAX ? (size_t)rl.rlim_cur : INT_MAX;
	h.taken = taken = calloc(h.max / 8 + 1, 1);
	if (!taken)
		return -ENOMEM;
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);
		struct node_slot *s = i && i->id != id ? node_table_slot(t->nodes, id) : NULL;

		/* The server died while the file got another node id. */
		if (s && s->state == NODE_FORMER && s->held_fd) {
			struct node_slot *now = node_table_slot(t->nodes, i->id);

			if (!now->held_fd)
				now->held_fd = s->held_fd;
			s->held_fd = 0;
		}
	}
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);
		struct node_slot *s = i && i->id == id ? node_table_slot(t->nodes, id) : NULL;

		if (s && s->held_fd)
			take_held(t, &h, i, s);
	}
	return 0;
}

/* ---- inodes and names ---- */

unsigned inode_given_by_slot(const struct node_slot *s)
{
	unsigned given = s->is_mapped_past_us ? INODE_GIVEN_MAPPING : 0;

	/* The kernel got the inode by this id, or would have (sb_reply.c). Lookups of lock holders
	 * are not the kernel's (sb_locks.c). */
	if (s->nlookup > s->n_tied)
		given |= INODE_GIVEN_OWN_ID;
	/* A program may look up any listed name now. */
	if (s->type == DT_DIR)
		given |= INODE_GIVEN_NAMES;
	return given;
}

int inode_make_unresolved(struct union_fs *t, uint32_t id)
{
	struct node_slot *s = node_table_slot(t->nodes, id);
	struct inode *i = inode_for_slot(t, id);

	if (!i)
		return -ENOMEM;
	i->given = inode_given_by_slot(s);
	node_table_set_object(t->nodes, id, i);
	if (id == NODE_TABLE_ROOT) {
		t->root = i;
		return 0;
	}
	i->stage = INODE_UNRESOLVED;
	i->links = INODE_ORPHAN;
	t->inodes->n_unresolved++;
	return 0;
}

static int make_all(struct union_fs *t)
{
	int r = 0;

	for (uint32_t id = NODE_TABLE_ROOT; r == 0 && id < node_table_end(t->nodes); id++) {
		struct node_slot *s = node_table_slot(t->nodes, id);

		if (s && s->state != NODE_FORMER)
			r = inode_make_unresolved(t, id);
	}
	return r;
}

static int lead_former(struct union_fs *t)
{
	int r = 0;

	for (uint32_t id = NODE_TABLE_ROOT + 1; r == 0 && id < node_table_end(t->nodes); id++) {
		struct node_slot *s = node_table_slot(t->nodes, id);
		struct inode *i;

		if (!s || s->state != NODE_FORMER)
			continue;
		i = node_table_object(t->nodes, s->successor);
		/* The server died while it released the former id. */
		if (!s->nlookup || !i || i->type == DT_DIR) {
			node_table_release(t->nodes, id);
			continue;
		}
		node_table_clear_name(t->nodes, id);
		r = inode_add_former_locked(t, i, id);
	}
	return r;
}

int inode_name_unresolved(struct union_fs *t, struct inode *i)
{
	const char *name;
	uint32_t parent;
	size_t len = node_table_name(t->nodes, i->id, &parent, &name);
	int r;

	if (!len || !parent)
		return 0;
	/* The name was lost by a rollback (inode_rollback.h). */
	if (inode_rollback_is_unsaid(t) && node_table_slot(t->nodes, i->id)->state == NODE_ORPHAN)
		return 0;
	r = inode_link_name(t, i, node_table_object(t->nodes, parent), name, len);
	if (r == 0)
		i->links = INODE_NAMED;
	return r;
}

static int name_all(struct union_fs *t)
{
	int r = 0;

	for (uint32_t id = NODE_TABLE_ROOT + 1; r == 0 && id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && i->id == id)
			r = inode_name_unresolved(t, i);
	}
	return r;
}

int inode_list_unresolved(struct union_fs *t, struct inode *i)
{
	return i->type == DT_DIR
		       ? 0
		       : htab_insert(&t->inodes->unresolved, &i->by_lower,
				     inode_unresolved_key(node_table_slot(t->nodes, i->id)));
}

/* Call after the descriptors are taken, which may tell the number of the upper file. */
static int list_all(struct union_fs *t)
{
	int r = 0;

	for (uint32_t id = NODE_TABLE_ROOT + 1; r == 0 && id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && i->id == id)
			r = inode_list_unresolved(t, i);
	}
	return r;
}

static void note_special(struct union_fs *t)
{
	LOCK_SCOPE(&t->inodes->lock);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && i->id == id)
			inode_note_special_locked(t, i);
	}
}

/* Drop inodes whose lookups were not granted yet, or just given back. */
static void drop_unheld(struct union_fs *t)
{
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);

		if (i && i->id == id)
			inode_drop_unheld(t, i);
	}
}

void inode_table_number_alike(struct union_fs *t)
{
	struct xino *const to[] = { [NODE_TABLE_OF_TREE] = &t->devs,
				    [NODE_TABLE_OF_IMAGE] = image_inner_mounts(t->image) };

	for (unsigned place = 0; place < NODE_TABLE_PLACES; place++) {
		const struct node_table_devs *d = node_table_devs(t->nodes, place);

		for (unsigned k = 0; k < d->n; k++)
			if (xino_index(to[place], (dev_t)d->dev[k]) != k)
				log_warn("inode numbers of a file system mounted inside a layer "
					 "have changed");
	}
}

/* For example, without memory: everything stays open for another attempt. */
static void give_up(struct union_fs *t)
{
	int slots, names;

	if (t->inodes)
		inode_table_leave(t, &slots, &names);
	else
		node_table_leave(t->nodes, &slots, &names);
	t->nodes = NULL;
	t->root = NULL;
}

int inode_table_attach(struct union_fs *t, int slots_fd, int names_fd)
{
	int r = node_table_attach(slots_fd, names_fd, &t->nodes);

	if (r < 0)
		return r;
	t->inodes = inode_table_make();
	r = t->inodes ? 0 : -ENOMEM;
	if (r == 0) {
		inode_table_prepare(t);
		inode_table_number_alike(t);
		r = inode_rollback_settle(t);
	}
	if (r == 0) {
		htab_reserve(&t->inodes->names, node_table_count(t->nodes));
		htab_reserve(&t->inodes->unresolved, node_table_count(t->nodes));
		r = make_all(t);
	}
	r = r ?: lead_former(t) ?: name_all(t);
	if (r == 0)
		r = take_all_held(t);
	if (r == 0)
		r = list_all(t);
	if (r < 0) {
		give_up(t);
		return r;
	}
	note_special(t);
	drop_unheld(t);
	return 0;
}
