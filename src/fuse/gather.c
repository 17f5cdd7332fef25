// SPDX-License-Identifier: Apache-2.0
/* Invariants:
 * 1. A request is answered by the mount whose number its node id has. Number 0 has no upper, and answers only what
 *    changes nothing: a mistake in here is ESTALE or EROFS, never a change of somebody else's file.
 * 2. The kernel knows a name of a gathered mount by a common id only if that was looked up, and the file was unchanged
 *    then. (A listing under way while the file is changed would be entered after that: files go out by look-ups, of
 *    which there is one at a time for a name.)
 * 3. What changes an inode or its names has its private id, or is told ESTALE: so the kernel has no common id for what
 *    a mount has changed.
 * 4. A mount is in it as long as the kernel may ask for it: until it has given back its root, or is gone. */
#include "gather-internal.h"

#include "ops.h"
#include "veneer/cleanup.h"
#include "veneer/duty.h"
#include "veneer/log.h"
#include "veneer/lookup.h"

#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>

#define LOWER_HALF 0xffffffffu
#define NUMBER_MAX 999999999u

/* ---- who is in it ---- */

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
	list_init(&g->waiters);
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
	htab_release(&g->ties);
	htab_release(&g->ties_by_node);
	recall_free(g->recall);
	pthread_cond_destroy(&g->unpinned);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

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
	return 0;
}

void gather_lose(struct gather *g, uint32_t number)
{
	uint32_t *expected;

	LOCK_SCOPE(&g->lock);
	expected = find_expected_locked(g, number);
	if (expected)
		*expected = 0;
	pthread_cond_broadcast(&g->unpinned);
}

void gather_lose_rest(struct gather *g)
{
	LOCK_SCOPE(&g->lock);
	g->n_expected = 0;
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

/* ---- requests ---- */

/* One request, as it came. */
struct request {
	struct gather *g;
	struct fuse_in_header *in;
	char *arg;		/* what follows */
	size_t len;
	const struct fuse_buf *buf;
};

static int reply(const struct request *q, int error, const void *data, size_t len)
{
	struct fuse_out_header head = { .unique = q->in->unique, .error = error };
	struct iovec iov[] = { { &head, sizeof(head) }, { (void *)data, len } };

	gather_wait_end(q->g, q->in->unique);
	head.len = (uint32_t)(sizeof(head) + len);
	return writev(session_fd(q->g->session), iov, len ? 2 : 1) < 0 ? -errno : 0;
}

static bool done(const struct request *q, int error)
{
	reply(q, error, NULL, 0);
	return true;
}

/* The name at this place of what follows; NULL: there is none. */
static const char *name_at(const struct request *q, size_t off)
{
	return off < q->len && memchr(q->arg + off, '\0', q->len - off) ? q->arg + off : NULL;
}

/* The kernel is told to look the name up again, and what it finds then is the mount's own. */
static bool switch_node(const struct request *q, struct ient *e)
{
	recall_note(q->g->recall, q->in->pid, gather_recall_of(q->g, e), gather_now_ms());
	stats_add(STATS_NODE_SWITCHES, 1);
	return done(q, -ESTALE);
}

struct inode *gather_common_inode(struct gather *g, uint64_t node)
{
	struct tree *t = &g->common->tree;
	struct inode *i = inode_get(t, node);

	return i && lookup_revive(t, i) == 0 ? i : NULL;
}

static bool switch_common(const struct request *q, uint64_t node)
{
	struct inode *i = gather_common_inode(q->g, node);

	return i && i->lower ? switch_node(q, i->lower) : done(q, -ESTALE);
}

static void forget(struct gather *g, uint64_t node, uint64_t n)
{
	struct gathered *c;

	if (node <= LOWER_HALF) {
		if (node != FUSE_ROOT_ID)
			inode_forget(&g->common->tree, node, n);
		return;
	}
	c = gather_pin(g, node >> 32);
	if (!c)
		return;
	if ((node & LOWER_HALF) != FUSE_ROOT_ID) {
		inode_forget(&c->m->tree, node & LOWER_HALF, n);
	} else {
		LOCK_SCOPE(&g->lock);
		c->root->nlookup -= n < c->root->nlookup ? n : c->root->nlookup;
		if (!c->root->nlookup)
			g->unused(c->owner);
	}
	gather_unpin(c);
}

static bool forget_many(const struct request *q)
{
	const struct fuse_batch_forget_in *head = (void *)q->arg;
	const struct fuse_forget_one *one = (void *)(head + 1);

	for (size_t i = 0; q->len >= sizeof(*head) + (i + 1) * sizeof(*one) && i < head->count; i++)
		forget(q->g, one[i].nodeid, one[i].nlookup);
	return true;
}

/* Executable, or called like a library: nobody locks ranges of those, and they are most of what a start opens. */
static bool is_program(struct gather *g, uint64_t node)
{
	const struct inode *i = gather_common_inode(g, node);
	struct stat st;

	return i && i->lower && (strstr(i->lower->name, ".so") ||
				 (image_stat(g->common->tree.image, i->lower, &st) == 0 && st.st_mode & 0111));
}

/* Each has a handle of its own, and each close is told of, which costs a request: by that locks end (locks.h). */
static bool open_file(const struct request *q)
{
	struct fuse_open_out out = { .fh = q->in->unique << OP_HANDLE_WAY_BITS | GATHER_OF_IMAGE, .open_flags = FOPEN_KEEP_CACHE };

	if (is_program(q->g, q->in->nodeid)) {
		out.fh |= GATHER_UNFLUSHED;
		out.open_flags |= FOPEN_NOFLUSH;
	}
	stats_add(STATS_OPENS_CACHED, 1);
	reply(q, 0, &out, sizeof(out));
	return true;
}

/* ---- the directory above all roots ---- */

static void fill_attr(const struct stat *st, struct fuse_attr *ret)
{
	*ret = (struct fuse_attr){
		.ino = st->st_ino, .size = (uint64_t)st->st_size, .blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec, .atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtime = (uint64_t)st->st_mtim.tv_sec, .mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctime = (uint64_t)st->st_ctim.tv_sec, .ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode, .nlink = (uint32_t)st->st_nlink, .uid = st->st_uid, .gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev, .blksize = (uint32_t)st->st_blksize,
	};
}

static void count_root(struct gathered *c, int change)
{
	LOCK_SCOPE(&c->gather->lock);
	c->root->nlookup += (uint64_t)change;
}

static void answer_root(const struct request *q, struct gathered *c)
{
	struct fuse_entry_out e = { .nodeid = gather_base(c) | FUSE_ROOT_ID, .generation = c->secret,
				    .entry_valid = (uint64_t)c->m->opts.timeout_s };
	struct stat st;
	int r = lookup_stat(&c->m->tree, c->m->tree.root, &st);

	if (r < 0) {
		done(q, r == -EUCLEAN ? -EIO : r);
		return;
	}
	mount_present_ids(c->m, &st);
	fill_attr(&st, &e.attr);
	count_root(c, 1);
	if (reply(q, 0, &e, sizeof(e)) < 0)
		count_root(c, -1);
}

static bool look_up_root(const struct request *q)
{
	const char *name = name_at(q, 0);
	struct gathered *c;
	unsigned number;
	char same[16];

	if (!name || sscanf(name, "%9u", &number) != 1)
		return done(q, -ENOENT);
	snprintf(same, sizeof(same), "%u", number);
	c = strcmp(name, same) ? NULL : gather_pin(q->g, number);
	if (!c)
		return done(q, -ENOENT);
	answer_root(q, c);
	gather_unpin(c);
	return true;
}

/* True: answered. */
static bool take_top(const struct request *q)
{
	switch (q->in->opcode) {
	case FUSE_LOOKUP:
		return look_up_root(q);
	case FUSE_GETATTR:
	case FUSE_STATFS:
		return false;
	case FUSE_OPENDIR:
		return done(q, -ENOSYS);
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_RELEASEDIR:
		return done(q, 0);
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
		return done(q, -ENODATA);
	default:
		return done(q, -EROFS);
	}
}

/* ---- files of the image ---- */

static bool open_common(const struct request *q)
{
	const struct fuse_open_in *in = (void *)q->arg;

	if (q->len < sizeof(*in))
		return done(q, -EINVAL);
	return (in->flags & O_ACCMODE) != O_RDONLY || in->flags & O_TRUNC ? switch_common(q, q->in->nodeid) : open_file(q);
}

/* From a file of the image to one of a mount, which has that of the image too. Else the kernel copies, by its pages. */
static bool copy_common(const struct request *q)
{
	struct fuse_copy_file_range_in *in = (void *)q->arg;
	struct inode *from = gather_common_inode(q->g, q->in->nodeid), *own;
	struct gathered *c = q->len < sizeof(*in) ? NULL : gather_pin(q->g, in->nodeid_out >> 32);

	if (!c)
		return done(q, -EXDEV);
	if (from && from->lower && gather_find_own(c, from->lower, &own) == 0) {
		in->nodeid_out &= LOWER_HALF;
		q->in->nodeid = own->id;
		gather_route = (struct gather_route){ .c = c, .opcode = q->in->opcode };
		session_answer(c->session, q->buf);
		gather_route.c = NULL;
		inode_unref(&c->m->tree, own);
	} else {
		done(q, -EXDEV);
	}
	gather_unpin(c);
	return true;
}

static void answer_for(const struct request *q, struct gathered *c);

static bool lock_common(const struct request *q)
{
	struct gathered *c = NULL;
	uint32_t own = 0;
	int r = -EINVAL;

	if (q->len >= sizeof(struct fuse_lk_in))
		r = gather_lock_find(q->g, q->in, (void *)q->arg, &c, &own);
	if (r <= 0)
		return done(q, r);
	q->in->nodeid = own;
	answer_for(q, c);
	gather_unpin(c);
	return true;
}

static bool flush_common(const struct request *q)
{
	const struct fuse_flush_in *in = (void *)q->arg;

	if (q->len >= sizeof(*in))
		gather_lock_flush(q->g, q->in->nodeid, in->lock_owner, in->fh);
	return done(q, 0);
}

static bool release_common(const struct request *q)
{
	const struct fuse_release_in *in = (void *)q->arg;

	if (q->len >= sizeof(*in))
		gather_lock_release(q->g, in->fh);
	return done(q, 0);
}

static bool take_common(const struct request *q)
{
	switch (q->in->opcode) {
	case FUSE_GETATTR:
	case FUSE_READ:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_LSEEK:
	case FUSE_STATFS:
		return false;
	case FUSE_OPEN:
		return open_common(q);
	case FUSE_FSYNC:
		return done(q, 0);
	case FUSE_RELEASE:
		return release_common(q);
	case FUSE_SETATTR:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
		return switch_common(q, q->in->nodeid);
	case FUSE_COPY_FILE_RANGE:
		return copy_common(q);
	case FUSE_FLUSH:
		return flush_common(q);
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
		return lock_common(q);
	case FUSE_IOCTL:
	case FUSE_POLL:
	case FUSE_ACCESS:
	case FUSE_BMAP:
		return done(q, -ENOSYS);
	case FUSE_WRITE:
	case FUSE_FALLOCATE:
		return done(q, -EBADF);
	default:
		return done(q, -ENOSYS);
	}
}

/* ---- files of one mount ---- */

/* The name is about to be taken from what it leads to: is that known to the kernel as the image's? */
static struct ient *common_of(struct gathered *c, uint64_t parent, const char *name)
{
	struct tree *t = &c->m->tree;
	struct inode *dir = inode_get(t, parent), *i;
	struct ient *e = NULL;
	struct stat st;

	if (!dir || !name || strlen(name) > NAME_MAX || lookup_name(t, dir, name, &i, &st) < 0)
		return NULL;
	if (!i->is_private && gather_is_common(c->m, i))
		e = i->lower;
	inode_unref(t, i);
	return e;
}

static bool switch_names(const struct request *q, struct ient *a, struct ient *b)
{
	if (a && b)
		recall_note(q->g->recall, q->in->pid, gather_recall_of(q->g, b), gather_now_ms());
	return a || b ? switch_node(q, a ? a : b) : false;
}

/* True: answered. Otherwise the node id in *node, of the mount, is made one of its own. */
static bool is_elsewhere(struct gathered *c, uint64_t *node)
{
	if (*node >> 32 != c->number)
		return true;
	*node &= LOWER_HALF;
	return false;
}

static bool prepare_rename(const struct request *q, struct gathered *c, size_t head)
{
	struct fuse_rename_in *in = (void *)q->arg;
	const char *from, *to;

	if (q->len < head)
		return done(q, -EINVAL);
	if (is_elsewhere(c, &in->newdir))
		return done(q, -EXDEV);
	from = name_at(q, head);
	to = from ? name_at(q, head + strlen(from) + 1) : NULL;
	if (!to)
		return done(q, -EINVAL);
	return switch_names(q, common_of(c, q->in->nodeid, from), common_of(c, in->newdir, to));
}

static bool prepare_link(const struct request *q, struct gathered *c)
{
	struct fuse_link_in *in = (void *)q->arg;

	if (q->len < sizeof(*in))
		return done(q, -EINVAL);
	if (in->oldnodeid <= LOWER_HALF)
		return switch_common(q, in->oldnodeid);
	return is_elsewhere(c, &in->oldnodeid) ? done(q, -EXDEV) : false;
}

static bool prepare_copy(const struct request *q, struct gathered *c)
{
	struct fuse_copy_file_range_in *in = (void *)q->arg;

	if (q->len < sizeof(*in))
		return done(q, -EINVAL);
	return is_elsewhere(c, &in->nodeid_out) ? done(q, -EXDEV) : false;
}

/* Its node id is the mount's own by now. True: answered. */
static bool prepare(const struct request *q, struct gathered *c)
{
	switch (q->in->opcode) {
	case FUSE_UNLINK:
		return switch_names(q, common_of(c, q->in->nodeid, name_at(q, 0)), NULL);
	case FUSE_RENAME:
		return prepare_rename(q, c, sizeof(struct fuse_rename_in));
	case FUSE_RENAME2:
		return prepare_rename(q, c, sizeof(struct fuse_rename2_in));
	case FUSE_LINK:
		return prepare_link(q, c);
	case FUSE_COPY_FILE_RANGE:
		return prepare_copy(q, c);
	default:
		return false;
	}
}

/* Of who waits for a lock. libfuse keeps it until what it is for comes. */
static void repeat_interrupt(const struct request *q, struct gathered *c)
{
	struct {
		struct fuse_in_header head;
		struct fuse_interrupt_in in;
	} what = { .head = { .len = sizeof(what), .opcode = FUSE_INTERRUPT, .unique = q->in->unique | 1 },
		   .in = { .unique = q->in->unique } };
	const struct fuse_buf buf = { .size = sizeof(what), .mem = &what };

	session_answer(c->session, &buf);
}

static void answer_for(const struct request *q, struct gathered *c)
{
	struct stats *before = stats_enter(c->m->tree.stats);

	q->in->nodeid &= LOWER_HALF;
	gather_route = (struct gather_route){ .c = c, .opcode = q->in->opcode, .caller = q->in->pid };
	if (!prepare(q, c)) {
		if (q->in->opcode == FUSE_SETLKW && gather_wait_at(q->g, q->in->unique, c->number))
			repeat_interrupt(q, c);
		session_answer(c->session, q->buf);
	}
	gather_route.c = NULL;
	stats_enter(before);
}

/* Only who waits for a lock can be helped by it. (It says nothing of whose request that is.) */
static bool interrupt(const struct request *q)
{
	const struct fuse_interrupt_in *in = (void *)q->arg;
	const uint32_t number = q->len < sizeof(*in) ? 0 : gather_wait_interrupt(q->g, in->unique);
	struct gathered *c = number ? gather_pin(q->g, number) : NULL;

	if (c) {
		gather_route = (struct gather_route){ .c = c, .opcode = FUSE_INTERRUPT };
		session_answer(c->session, q->buf);
		gather_route.c = NULL;
		gather_unpin(c);
	}
	return true;
}

static bool take(void *arg, const struct fuse_buf *buf)
{
	struct request q = { .g = arg, .in = buf->mem, .buf = buf };
	struct gathered *c;

	if (buf->size < sizeof(*q.in))
		return false;
	q.arg = (char *)(q.in + 1);
	q.len = buf->size - sizeof(*q.in);
	if (q.in->opcode == FUSE_INTERRUPT)
		return interrupt(&q);
	if (q.in->opcode == FUSE_FORGET && q.len >= sizeof(struct fuse_forget_in)) {
		forget(q.g, q.in->nodeid, ((struct fuse_forget_in *)q.arg)->nlookup);
		return true;
	}
	if (q.in->opcode == FUSE_BATCH_FORGET)
		return forget_many(&q);
	if (q.in->opcode == FUSE_INIT || q.in->opcode == FUSE_DESTROY)
		return false;
	if (q.in->opcode == FUSE_SETLKW && gather_wait_begin(q.g, q.in->unique) < 0)
		return done(&q, -ENOLCK);
	if (q.in->nodeid <= LOWER_HALF)
		return q.in->nodeid == FUSE_ROOT_ID ? take_top(&q) : take_common(&q);
	c = gather_pin(q.g, q.in->nodeid >> 32);
	if (!c)
		return done(&q, q.in->opcode == FUSE_FLUSH || q.in->opcode == FUSE_RELEASE ? 0 : -ESTALE);
	answer_for(&q, c);
	gather_unpin(c);
	return true;
}

void gather_note_device(struct gather *g, unsigned dev_major, unsigned dev_minor)
{
	g->dev_major = dev_major;
	g->dev_minor = dev_minor;
}

int gather_start(struct gather *g, int fuse_fd, struct session **ret, char *err, size_t err_size)
{
	int r = session_start(g->common, fuse_fd, ret, err, err_size);

	if (r == 0) {
		g->session = *ret;
		session_divert(*ret, take, g);
	}
	return r;
}

int gather_resume(struct gather *g, int fuse_fd, const void *init, size_t len, enum io_mode io, struct session **ret, char *err,
		  size_t err_size)
{
	int r = session_resume(g->common, fuse_fd, init, len, io, ret, err, err_size);

	if (r == 0) {
		g->session = *ret;
		session_divert(*ret, take, g);
	}
	return r;
}

bool gather_has_ended(const struct gather *g)
{
	struct pollfd p = { .fd = session_fd(g->session) };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}
