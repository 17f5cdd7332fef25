// SPDX-License-Identifier: Apache-2.0
/* Who is in a gathering. A mount is in it as long as the kernel may ask for it: until it has given back its root, or is
 * gone. */
#include "gather-internal.h"

#include "veneer/cleanup.h"
#include "veneer/duty.h"
#include "veneer/lookup.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>

#define NUMBER_MAX 999999999u

/* ---- as a whole ---- */

int gather_new(struct mount *common, int recall_fd, void (*unused)(void *owner), struct gather **ret)
{
	struct gather *g = calloc(1, sizeof(*g));
	int r = g ? 0 : -ENOMEM;

	if (r < 0)
		closep(&recall_fd);
	else
		r = recall_fd < 0 ? recall_new(&g->recall) : recall_attach(recall_fd, gather_now_ms(), &g->recall);
	if (r < 0) {
		free(g);
		return r;
	}
	g->common = common;
	common->is_gathered = true;
	g->unused = unused;
	list_init(&g->late);
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->unpinned, NULL);
	*ret = g;
	return 0;
}

void gather_free(struct gather *g)
{
	if (!g)
		return;
	gather_release_dirs(g);
	htab_release(&g->members);
	free(g->expected);
	gather_lock_forget_late(g);
	htab_release(&g->waiters);
	htab_release(&g->ties);
	htab_release(&g->ties_by_node);
	recall_free(g->recall);
	pthread_cond_destroy(&g->unpinned);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* ---- by number ---- */

static struct gathered *find_locked(struct gather *g, uint64_t number)
{
	for (struct hlink *l = htab_first(&g->members, number); l; l = htab_next(l)) {
		struct gathered *c = container_of(l, struct gathered, link);

		if (c->number == number)
			return c;
	}
	return NULL;
}

static uint32_t *find_expected_locked(struct gather *g, uint64_t number)
{
	for (size_t i = 0; i < g->n_expected; i++)
		if (number && g->expected[i] == number)
			return &g->expected[i];
	return NULL;
}

int gather_expect(struct gather *g, uint32_t number)
{
	uint32_t *more;

	LOCK_SCOPE(&g->lock);
	more = reallocarray(g->expected, g->n_expected + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	g->expected = more;
	g->expected[g->n_expected++] = number;
	g->n_awaited += number != 0;
	return 0;
}

void gather_lose(struct gather *g, uint32_t number)
{
	uint32_t *expected;

	LOCK_SCOPE(&g->lock);
	expected = find_expected_locked(g, number);
	if (expected) {
		*expected = 0;
		g->n_awaited--;
	}
	if (!g->n_awaited)
		gather_lock_forget_late(g);
	pthread_cond_broadcast(&g->unpinned);
}

void gather_lose_rest(struct gather *g)
{
	LOCK_SCOPE(&g->lock);
	g->n_expected = 0;
	g->n_awaited = 0;
	gather_lock_forget_late(g);
	pthread_cond_broadcast(&g->unpinned);
}

/* NULL: there is none. One that is just being opened again is waited for, as a file system that does not answer is. */
struct gathered *gather_pin(struct gather *g, uint64_t number)
{
	struct gathered *c;

	LOCK_SCOPE(&g->lock);
	while (!(c = find_locked(g, number)) && find_expected_locked(g, number))
		pthread_cond_wait(&g->unpinned, &g->lock);
	if (c)
		c->pins++;
	return c;
}

void gather_unpin(struct gathered *c)
{
	LOCK_SCOPE(&c->gather->lock);
	if (--c->pins == 0)
		pthread_cond_broadcast(&c->gather->unpinned);
}

/* ---- it comes and goes ---- */

static int enter(struct gather *g, struct gathered *c)
{
	LOCK_SCOPE(&g->lock);
	return htab_insert(&g->members, &c->link, c->number);
}

static void leave_mount(struct gathered *c)
{
	c->m->node_base = 0;
	c->m->is_gathered = false;
	c->m->gathered = NULL;
	free(c);
}

static struct gathered *gathered_new(struct gather *g, struct mount *m, void *owner, const uint32_t *secret)
{
	struct gathered *c = m->key > NUMBER_MAX ? NULL : calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_lock(&g->lock);
	c->number = m->key ? (uint32_t)m->key : ++g->last_number;
	pthread_mutex_unlock(&g->lock);
	list_init(&c->ties);
	c->gather = g;
	c->m = m;
	c->owner = owner;
	c->root = inode_slot(&m->tree, NODETAB_ROOT);
	c->is_resumed = secret;
	if (secret)
		c->secret = *secret;
	else if (getrandom(&c->secret, sizeof(c->secret), GRND_NONBLOCK) != sizeof(c->secret))
		c->secret = 0;
	return c;
}

int gather_join(struct gather *g, struct mount *m, void *owner, const uint32_t *secret, struct gathered **ret)
{
	struct gathered *c = gathered_new(g, m, owner, secret);
	int r;

	if (!c)
		return -ENOMEM;
	m->is_gathered = true;
	m->gathered = c;
	gather_route = (struct gather_route){ .c = c, .opcode = FUSE_INIT };
	r = session_inside(g->session, m, &gather_io, &c->session);
	gather_route.c = NULL;
	m->node_base = gather_base(c);
	if (r == 0) {
		r = (secret ? gather_lock_resume(c) : 0) ?: enter(g, c);
		if (r < 0)
			session_free(c->session);
	}
	if (r < 0) {
		gather_lock_leave(c);
		leave_mount(c);
		return r;
	}
	gather_lose(g, c->number);	/* it is not waited for any more */
	*ret = c;
	return 0;
}

uint32_t gather_number(const struct gathered *c)
{
	return c->number;
}

uint32_t gather_secret(const struct gathered *c)
{
	return c->secret;
}

int gather_recall_fd(const struct gather *g)
{
	return recall_fd(g->recall);
}

bool gather_is_used(struct gathered *c)
{
	LOCK_SCOPE(&c->gather->lock);
	return c->root->nlookup > 0;
}

/* Waits for whoever looks something up in that directory, and so for an answer of ours: a server that is killed over it must not
 * be waited for by the next. */
static int forget_name(struct gathered *c, uint64_t parent, const char *name)
{
	struct fuse_notify_inval_entry_out what = { .parent = parent, .namelen = (uint32_t)strlen(name) };
	struct fuse_out_header head = { .error = FUSE_NOTIFY_INVAL_ENTRY };
	struct iovec iov[] = { { &head, sizeof(head) }, { &what, sizeof(what) }, { (void *)name, what.namelen + 1 } };
	int waiter, r;

	head.len = (uint32_t)(sizeof(head) + sizeof(what) + iov[2].iov_len);
	waiter = duty_wait_begin();
	r = writev(session_fd(c->gather->session), iov, 3) < 0 ? -errno : 0;
	duty_wait_end(waiter);
	return r;
}

/* A server that died may have counted a look-up and not answered it, or read a FORGET and not counted it; its root then
 * would be held for ever. Where the kernel knows nothing of the root it knows nothing below it either. */
static void ask_root(struct gathered *c)
{
	struct fuse_notify_inval_inode_out what = { .ino = gather_base(c) | FUSE_ROOT_ID, .off = -1 };
	struct fuse_out_header head = { .len = sizeof(head) + sizeof(what), .error = FUSE_NOTIFY_INVAL_INODE };
	struct iovec iov[] = { { &head, sizeof(head) }, { &what, sizeof(what) } };

	if (writev(session_fd(c->gather->session), iov, 2) >= 0 || errno != ENOENT)
		return;
	LOCK_SCOPE(&c->gather->lock);
	c->root->nlookup = 0;
}

static void forget_below(struct gathered *c)
{
	struct lookup_entry entry;
	uint64_t pos = 0;
	int r = 0;

	while (lookup_next(&c->m->tree, c->m->tree.root, &pos, &entry) == 1 && r != -ENODEV)
		r = forget_name(c, gather_base(c) | FUSE_ROOT_ID, entry.name);
}

/* What was in use the first time keeps its parents in the kernel's memory when it is no more: so what the root has is
 * named too. */
void gather_forget(struct gathered *c)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", c->number);
	if (forget_name(c, FUSE_ROOT_ID, name) == -ENOENT)
		forget_below(c);
	if (c->is_resumed)
		ask_root(c);
}

void gather_leave(struct gathered *c)
{
	struct gather *g = c->gather;

	pthread_mutex_lock(&g->lock);
	htab_remove(&g->members, &c->link);
	while (c->pins)
		pthread_cond_wait(&g->unpinned, &g->lock);
	pthread_mutex_unlock(&g->lock);
	gather_lock_leave(c);
	session_free(c->session);
	leave_mount(c);
}
