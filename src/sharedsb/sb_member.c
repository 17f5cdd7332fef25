// SPDX-License-Identifier: Apache-2.0
/* The members of a shared superblock. A mount is a member while the kernel may send requests for
 * it: until the kernel has forgotten its root, or the superblock is gone. */
#include "shared_sb-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/recover/activity.h"
#include "veneer/union/locks.h"
#include "veneer/union/lookup.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>

#define NUMBER_MAX 999999999u

/* ---- by number ---- */

int sb_member_expect(struct shared_sb *g, uint32_t number)
{
	LOCK_SCOPE(&g->lock);
	if (array_grow(&g->expected, g->n_expected) < 0)
		return -ENOMEM;
	g->expected[g->n_expected++] = number;
	g->n_awaited += number != 0;
	return 0;
}

void sb_member_lose(struct shared_sb *g, uint32_t number)
{
	uint32_t *expected;

	LOCK_SCOPE(&g->lock);
	expected = sb_member_expected_locked(g, number);
	if (expected) {
		*expected = 0;
		g->n_awaited--;
	}
	if (!g->n_awaited)
		sb_locks_forget_late(g);
	pthread_cond_broadcast(&g->unpinned);
}

void sb_member_lose_rest(struct shared_sb *g)
{
	LOCK_SCOPE(&g->lock);
	g->n_expected = 0;
	g->n_awaited = 0;
	sb_locks_forget_late(g);
	pthread_cond_broadcast(&g->unpinned);
}

/* ---- joining and leaving ---- */

static int enter(struct shared_sb *g, struct sb_member *c)
{
	LOCK_SCOPE(&g->lock);
	return htab_insert(&g->members, &c->link, c->number);
}

static void leave_mount(struct sb_member *c)
{
	c->m->node_base = 0;
	c->m->is_sb_member = false;
	c->m->sb_member = NULL;
	free(c);
}

static struct sb_member *sb_member_new(struct shared_sb *g, struct mount *m, void *owner,
				       const uint32_t *secret)
{
	struct sb_member *c = m->key > NUMBER_MAX ? NULL : calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	mutex_lock(&g->lock);
	c->number = m->key ? (uint32_t)m->key : ++g->last_number;
	mutex_unlock(&g->lock);
	list_init(&c->ties);
	c->shared_sb = g;
	c->m = m;
	c->owner = owner;
	c->root = inode_slot(&m->tree, NODE_TABLE_ROOT);
	c->is_resumed = secret;
	if (secret)
		c->secret = *secret;
	else if (getrandom(&c->secret, sizeof(c->secret), GRND_NONBLOCK) != sizeof(c->secret))
		c->secret = 0;
	return c;
}

int sb_member_join(struct shared_sb *g, struct mount *m, void *owner, const uint32_t *secret,
		   struct sb_member **ret)
{
	struct sb_member *c = sb_member_new(g, m, owner, secret);
	int r;

	if (!c)
		return -ENOMEM;
	m->is_sb_member = true;
	m->sb_member = c;
	sb_twin_compare(c);
	sb_reply_route = (struct shared_sb_route){ .c = c, .opcode = FUSE_INIT };
	r = session_start_inner(g->session, m, &sb_reply_io, &c->session);
	sb_reply_route.c = NULL;
	m->node_base = shared_sb_base(c);
	if (r == 0) {
		r = (secret ? sb_locks_resume(c) : 0) ?: enter(g, c);
		if (r < 0)
			session_free(c->session);
	}
	if (r < 0) {
		sb_locks_leave(c);
		leave_mount(c);
		return r;
	}
	sb_member_lose(g, c->number); /* it is no longer awaited */
	*ret = c;
	return 0;
}

const struct mount *sb_member_mount(const struct sb_member *c)
{
	return c->m;
}

uint32_t sb_member_number(const struct sb_member *c)
{
	return c->number;
}

uint32_t sb_member_secret(const struct sb_member *c)
{
	return c->secret;
}

bool sb_member_is_used(struct sb_member *c)
{
	LOCK_SCOPE(&c->shared_sb->lock);
	return c->root->nlookup > 0;
}

/* Waits for lookups in that directory, and so for answers of this server: a next server must not
 * wait for a killed one that is stuck here. */
static int forget_name(struct sb_member *c, uint64_t parent, const char *name)
{
	struct fuse_notify_inval_entry_out what = { .parent = parent,
						    .namelen = (uint32_t)strlen(name) };
	struct fuse_out_header head = { .error = FUSE_NOTIFY_INVAL_ENTRY };
	struct iovec iov[] = { { &head, sizeof(head) },
			       { &what, sizeof(what) },
			       { (void *)name, what.namelen + 1 } };
	int waiter, r;

	head.len = (uint32_t)(sizeof(head) + sizeof(what) + iov[2].iov_len);
	waiter = activity_wait_begin();
	r = writev(session_fd(c->shared_sb->session), iov, 3) < 0 ? -errno : 0;
	activity_wait_end(waiter);
	return r;
}

/* A dead server may have counted a lookup and not answered it, or read a FORGET and not counted it:
 * the root would then be held for ever. If the kernel does not know the root, it knows nothing
 * below it. */
static void ask_root(struct sb_member *c)
{
	struct fuse_notify_inval_inode_out what = { .ino = shared_sb_base(c) | FUSE_ROOT_ID,
						    .off = -1 };
	struct fuse_out_header head = { .len = sizeof(head) + sizeof(what),
					.error = FUSE_NOTIFY_INVAL_INODE };
	struct iovec iov[] = { { &head, sizeof(head) }, { &what, sizeof(what) } };

	if (writev(session_fd(c->shared_sb->session), iov, 2) >= 0 || errno != ENOENT)
		return;
	LOCK_SCOPE(&c->shared_sb->lock);
	c->root->nlookup = 0;
}

static void forget_below(struct sb_member *c)
{
	struct lookup_entry entry;
	uint64_t pos = 0;
	int r = 0;

	while (lookup_next(&c->m->tree, c->m->tree.root, &pos, &entry) == 1 && r != -ENODEV)
		r = forget_name(c, shared_sb_base(c) | FUSE_ROOT_ID, entry.name);
}

/* Also name the root's entries: an entry that was in use the first time keeps its parents in the
 * kernel's memory after its last use. */
void sb_member_forget(struct sb_member *c)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", c->number);
	if (forget_name(c, FUSE_ROOT_ID, name) == -ENOENT)
		forget_below(c);
	if (c->is_resumed)
		ask_root(c);
}

/* A thread that waits for a request of the mount gives up after this time. */
int sb_member_suspend(struct sb_member *c, unsigned ms)
{
	struct shared_sb *g = c->shared_sb;
	const int64_t end_ms = clock_ms() + ms;

	LOCK_SCOPE(&g->lock);
	c->is_suspended = true;
	while (c->pins && clock_ms() < end_ms)
		clock_wait(&g->unpinned, &g->lock, end_ms);
	if (!c->pins)
		return 0;
	c->is_suspended = false;
	pthread_cond_broadcast(&g->unpinned);
	return -EAGAIN;
}

static void resume(struct sb_member *c)
{
	struct shared_sb *g = c->shared_sb;

	LOCK_SCOPE(&g->lock);
	c->is_suspended = false;
	pthread_cond_broadcast(&g->unpinned);
}

static void enter_mount(struct sb_member *c)
{
	c->m->is_sb_member = true;
	c->m->sb_member = c;
	c->m->node_base = shared_sb_base(c);
}

void sb_member_resume(struct sb_member *c)
{
	/* The mount was opened anew. */
	if (!c->m->sb_member) {
		enter_mount(c);
		session_again_inner(c->session);
		sb_twin_compare(c);
		c->root = inode_slot(&c->m->tree, NODE_TABLE_ROOT);
	}
	resume(c);
}

void sb_member_lost(struct sb_member *c, struct locks *locks)
{
	struct shared_sb *g = c->shared_sb;

	/* Answers need the mount's fields. */
	enter_mount(c);
	if (locks)
		locks_end(locks, -ENODEV);
	mutex_lock(&g->lock);
	htab_remove(&g->members, &c->link);
	mutex_unlock(&g->lock);
	resume(c);
}

void sb_member_leave(struct sb_member *c)
{
	struct shared_sb *g = c->shared_sb;

	mutex_lock(&g->lock);
	htab_remove(&g->members, &c->link);
	while (c->pins)
		pthread_cond_wait(&g->unpinned, &g->lock);
	mutex_unlock(&g->lock);
	sb_locks_leave(c);
	session_free(c->session);
	leave_mount(c);
}
