// SPDX-License-Identifier: Apache-2.0
/* Invariants:
 * 1. The mount whose number is in the node id answers a request. Number 0 has no upper and answers
 *    only requests that change nothing. So a mistake here results in ESTALE or EROFS, never in a
 *    change of another mount's file.
 * 2. The kernel knows a name of a member mount by a common id only if a lookup returned it while
 *    the file was unchanged. (A listing may be entered after a concurrent change of the file. So
 *    listings announce no common ids; lookups do, one at a time per name.)
 * 3. A request that changes an inode or its names is for a private id, or is answered ESTALE: so
 *    the kernel has no common id of a file that a mount has changed. */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/base/tsan_order.h"
#include "veneer/fuse/op_lock.h"
#include "veneer/passthrough/passthrough_select.h"
#include "veneer/recover/activity.h"
#include "veneer/union/lookup.h"

#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#define LOWER_HALF 0xffffffffu

/* ---- the superblock ---- */

int shared_sb_new(struct mount *common, int estale_table_fd, void (*unused)(void *owner),
		  struct shared_sb **ret)
{
	struct shared_sb *g = calloc(1, sizeof(*g));
	int r = g ? 0 : -ENOMEM;

	if (r < 0)
		closep(&estale_table_fd);
	else
		r = estale_table_fd < 0
			    ? estale_table_new(&g->estale)
			    : estale_table_attach(estale_table_fd, clock_ms(), &g->estale);
	if (r < 0) {
		free(g);
		return r;
	}
	g->common = common;
	common->is_sb_member = true;
	g->unused = unused;
	list_init(&g->late);
	mutex_init(&g->lock);
	pthread_cond_init(&g->unpinned, NULL);
	*ret = g;
	return 0;
}

void shared_sb_free(struct shared_sb *g)
{
	if (!g)
		return;
	lock_is_private(&g->lock);
	sb_reply_release_dirs(g);
	htab_release(&g->members);
	free(g->expected);
	sb_locks_forget_late(g);
	htab_release(&g->waiters);
	htab_release(&g->ties);
	htab_release(&g->ties_by_node);
	estale_table_free(g->estale);
	pthread_cond_destroy(&g->unpinned);
	mutex_destroy(&g->lock);
	free(g);
}

int shared_sb_estale_fd(const struct shared_sb *g)
{
	return estale_table_fd(g->estale);
}

/* ---- requests ---- */

/* A request as received. */
struct request {
	struct shared_sb *g;
	struct fuse_in_header *in;
	char *arg; /* the bytes after the header */
	size_t len;
	const struct fuse_buf *buf;
	int64_t since_ms; /* arrival, of a request of a mount */
};

static int reply(const struct request *q, int error, const void *data, size_t len)
{
	struct fuse_out_header head = { .unique = q->in->unique, .error = error };
	struct iovec iov[] = { { &head, sizeof(head) }, { (void *)data, len } };

	sb_locks_wait_end(q->g, q->in->unique);
	head.len = (uint32_t)(sizeof(head) + len);
	return writev(session_fd(q->g->session), iov, len ? 2 : 1) < 0 ? -errno : 0;
}

static bool done(const struct request *q, int error)
{
	reply(q, error, NULL, 0);
	return true;
}

/* The name at this offset of arg; NULL: there is none. */
static const char *name_at(const struct request *q, size_t off)
{
	return off < q->len && memchr(q->arg + off, '\0', q->len - off) ? q->arg + off : NULL;
}

/* Tell the kernel to look the name up again: it then gets the mount's own node. */
static bool switch_node(const struct request *q, struct image_entry *e)
{
	estale_table_note(q->g->estale, q->in->pid, shared_sb_object_of(q->g, e), clock_ms());
	stats_add(STATS_NODE_SWITCHES, 1);
	return done(q, -ESTALE);
}

static bool switch_common(const struct request *q, uint64_t node)
{
	struct inode *i = sb_reply_common_inode(q->g, node);

	return i && inode_lower(i) ? switch_node(q, inode_lower(i)) : done(q, -ESTALE);
}

static void forget(struct shared_sb *g, uint64_t node, uint64_t n)
{
	struct activity *before;
	struct sb_member *c;

	if (node <= LOWER_HALF) {
		if (node != FUSE_ROOT_ID)
			inode_forget(&g->common->tree, node, n);
		return;
	}
	c = sb_member_pin(g, node >> 32);
	if (!c)
		return;
	if ((node & LOWER_HALF) != FUSE_ROOT_ID) {
		before = activity_begin(c->m->activity);
		inode_forget(&c->m->tree, node & LOWER_HALF, n);
		activity_end(before);
	} else {
		LOCK_SCOPE(&g->lock);
		c->root->nlookup -= MIN(n, c->root->nlookup);
		if (!c->root->nlookup)
			g->unused(c->owner);
	}
	sb_member_unpin(c);
}

static bool forget_many(const struct request *q)
{
	const struct fuse_batch_forget_in *head = (void *)q->arg;
	const struct fuse_forget_one *one = (void *)(head + 1);

	for (size_t i = 0; q->len >= sizeof(*head) + (i + 1) * sizeof(*one) && i < head->count; i++)
		forget(q->g, one[i].nodeid, one[i].nlookup);
	return true;
}

/* True for libx.so and libx.so.6, false for app.source. */
static bool has_library_name(const char *name)
{
	const char *s = strstr(name, ".so");

	while (s && s[3] && s[3] != '.')
		s = strstr(s + 1, ".so");
	return s;
}

/* An executable, or a file with a library's name: no program locks ranges of these, and they are
 * most of the files that a start opens. */
static bool is_program(struct shared_sb *g, uint64_t node)
{
	const struct inode *i = sb_reply_common_inode(g, node);
	struct stat st;

	return i && inode_lower(i) &&
	       (has_library_name(inode_lower(i)->name) ||
		(image_stat(g->common->tree.image, inode_lower(i), &st) == 0 && st.st_mode & 0111));
}

/* Must a descriptor of this file see the mount's writes? Then the file gets a node of that
 * mount. */
static bool is_followed(struct shared_sb *g, uint64_t node)
{
	struct inode *i = sb_reply_common_inode(g, node);
	struct passthrough_select o;

	return i && inode_lower(i) &&
	       passthrough_select_look(&g->common->tree, i, false, &o) == 0 &&
	       passthrough_select_is_followed(&o);
}

/* Each open has its own handle, and each close sends a FLUSH, which costs a request: these end
 * locks (locks.h). */
static bool open_file(const struct request *q)
{
	struct fuse_open_out out = { .fh = q->in->unique << OP_HANDLE_WAY_BITS | SHARED_SB_OF_IMAGE,
				     .open_flags = FOPEN_KEEP_CACHE };

	if (is_program(q->g, q->in->nodeid)) {
		out.fh |= SHARED_SB_UNFLUSHED;
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
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev,
		.blksize = (uint32_t)st->st_blksize,
	};
}

static void count_root(struct sb_member *c, int change)
{
	LOCK_SCOPE(&c->shared_sb->lock);
	c->root->nlookup += (uint64_t)change;
}

static void answer_root(const struct request *q, struct sb_member *c)
{
	struct fuse_entry_out e = { .nodeid = shared_sb_base(c) | FUSE_ROOT_ID,
				    .generation = c->secret,
				    .entry_valid = (uint64_t)c->m->opts.timeout_s };
	struct stat st;
	int r = lookup_stat(&c->m->tree, c->m->tree.root, &st);

	if (r < 0) {
		done(q, r == -EUCLEAN ? -EIO : r);
		return;
	}
	mount_present_root_ids(c->m, &st);
	fill_attr(&st, &e.attr);
	count_root(c, 1);
	if (reply(q, 0, &e, sizeof(e)) < 0)
		count_root(c, -1);
}

static bool look_up_root(const struct request *q)
{
	const char *name = name_at(q, 0);
	struct sb_member *c;
	unsigned number;
	char same[16];

	if (!name || sscanf(name, "%9u", &number) != 1)
		return done(q, -ENOENT);
	snprintf(same, sizeof(same), "%u", number);
	c = strcmp(name, same) ? NULL : sb_member_pin(q->g, number);
	if (!c)
		return done(q, -ENOENT);
	answer_root(q, c);
	sb_member_unpin(c);
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
	if ((in->flags & O_ACCMODE) != O_RDONLY || in->flags & O_TRUNC ||
	    is_followed(q->g, q->in->nodeid))
		return switch_common(q, q->in->nodeid);
	return open_file(q);
}

/* Copy from a file of the image to one of a mount, by the mount's own inode of that file. Otherwise
 * the kernel copies, through its pages. */
static bool copy_common(const struct request *q)
{
	struct fuse_copy_file_range_in *in = (void *)q->arg;
	struct inode *from = sb_reply_common_inode(q->g, q->in->nodeid), *own;
	struct sb_member *c = q->len < sizeof(*in) ? NULL
						   : sb_member_pin(q->g, in->nodeid_out >> 32);

	if (!c)
		return done(q, -EXDEV);
	if (from && inode_lower(from) && sb_reply_find_own(c, inode_lower(from), &own) == 0) {
		in->nodeid_out &= LOWER_HALF;
		q->in->nodeid = inode_id(own);
		sb_reply_route = (struct shared_sb_route){ .c = c, .opcode = q->in->opcode };
		session_answer(c->session, q->buf);
		sb_reply_route.c = NULL;
		inode_unref(&c->m->tree, own);
	} else {
		done(q, -EXDEV);
	}
	sb_member_unpin(c);
	return true;
}

static void answer_for(const struct request *q, struct sb_member *c);

static bool lock_common(const struct request *q)
{
	struct sb_member *c = NULL;
	uint32_t own = 0;
	int r = -EINVAL;

	if (q->len >= sizeof(struct fuse_lk_in))
		r = sb_locks_find(q->g, q->in, (void *)q->arg, &c, &own);
	if (r <= 0)
		return done(q, r);
	q->in->nodeid = own;
	answer_for(q, c);
	sb_member_unpin(c);
	return true;
}

static bool flush_common(const struct request *q)
{
	const struct fuse_flush_in *in = (void *)q->arg;

	if (q->len >= sizeof(*in))
		sb_locks_flush(q->g, q->in->nodeid, in->lock_owner, in->fh);
	return done(q, 0);
}

static bool release_common(const struct request *q)
{
	const struct fuse_release_in *in = (void *)q->arg;

	if (q->len >= sizeof(*in))
		sb_locks_release(q->g, in->fh);
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
	case FUSE_IOCTL:
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

/* Does the kernel know the name, which is about to be removed from its inode, by a common id? */
static struct image_entry *common_of(struct sb_member *c, uint64_t parent, const char *name)
{
	struct union_fs *t = &c->m->tree;
	struct inode *dir = inode_get(t, parent), *i;
	struct image_entry *e = NULL;
	struct stat st;

	if (!dir || !name || strlen(name) > NAME_MAX || lookup_name(t, dir, name, &i, &st) < 0)
		return NULL;
	if (!inode_is_private(i))
		e = sb_twin_file(c, i);
	inode_unref(t, i);
	return e;
}

static bool switch_names(const struct request *q, struct image_entry *a, struct image_entry *b)
{
	if (a && b)
		estale_table_note(q->g->estale, q->in->pid, shared_sb_object_of(q->g, b),
				  clock_ms());
	return a || b ? switch_node(q, a ? a : b) : false;
}

/* True: the node is of another mount. Otherwise *node becomes the mount's own id. */
static bool is_elsewhere(struct sb_member *c, uint64_t *node)
{
	if (*node >> 32 != c->number)
		return true;
	*node &= LOWER_HALF;
	return false;
}

static bool prepare_rename(const struct request *q, struct sb_member *c, size_t head)
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

static bool prepare_link(const struct request *q, struct sb_member *c)
{
	struct fuse_link_in *in = (void *)q->arg;

	if (q->len < sizeof(*in))
		return done(q, -EINVAL);
	if (in->oldnodeid <= LOWER_HALF)
		return switch_common(q, in->oldnodeid);
	return is_elsewhere(c, &in->oldnodeid) ? done(q, -EXDEV) : false;
}

static bool prepare_copy(const struct request *q, struct sb_member *c)
{
	struct fuse_copy_file_range_in *in = (void *)q->arg;

	if (q->len < sizeof(*in))
		return done(q, -EINVAL);
	return is_elsewhere(c, &in->nodeid_out) ? done(q, -EXDEV) : false;
}

/* Prepare a request; its node id is already the mount's own. True: answered. */
static bool prepare(const struct request *q, struct sb_member *c)
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

/* Forward the interrupt of a waiter for a lock; libfuse keeps it until its request arrives. */
static void repeat_interrupt(const struct request *q, struct sb_member *c)
{
	struct {
		struct fuse_in_header head;
		struct fuse_interrupt_in in;
	} what = { .head = { .len = sizeof(what),
			     .opcode = FUSE_INTERRUPT,
			     .unique = q->in->unique | 1 },
		   .in = { .unique = q->in->unique } };
	const struct fuse_buf buf = { .size = sizeof(what), .mem = &what };

	session_answer(c->session, &buf);
}

static void answer_for(const struct request *q, struct sb_member *c)
{
	struct stats *before = stats_enter(c->m->tree.stats);
	struct activity *before_it = activity_begin(c->m->activity);

	q->in->nodeid &= LOWER_HALF;
	sb_reply_route = (struct shared_sb_route){
		.c = c, .opcode = q->in->opcode, .caller = q->in->pid, .since_ms = q->since_ms
	};
	if (!prepare(q, c)) {
		if (q->in->opcode == FUSE_SETLKW &&
		    sb_locks_wait_at(q->g, q->in->unique, c->number))
			repeat_interrupt(q, c);
		session_answer(c->session, q->buf);
	}
	sb_reply_route.c = NULL;
	activity_end(before_it);
	stats_enter(before);
}

/* An interrupt affects only waiters for a lock. (It does not state the mount of its request.) */
static bool interrupt(const struct request *q)
{
	const struct fuse_interrupt_in *in = (void *)q->arg;
	const uint32_t number = q->len < sizeof(*in) ? 0
						     : sb_locks_wait_interrupt(q->g, in->unique);
	struct sb_member *c = number ? sb_member_pin(q->g, number) : NULL;

	if (c) {
		sb_reply_route = (struct shared_sb_route){ .c = c, .opcode = FUSE_INTERRUPT };
		session_answer(c->session, q->buf);
		sb_reply_route.c = NULL;
		sb_member_unpin(c);
	}
	return true;
}

static bool route(struct shared_sb *g, const struct fuse_buf *buf)
{
	struct request q = { .g = g, .in = buf->mem, .buf = buf };
	struct sb_member *c;

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
	if (q.in->opcode == FUSE_SETLKW && sb_locks_wait_begin(q.g, q.in->unique) < 0)
		return done(&q, -ENOLCK);
	if (q.in->nodeid <= LOWER_HALF)
		return q.in->nodeid == FUSE_ROOT_ID ? take_top(&q) : take_common(&q);
	q.since_ms = clock_ms();
	c = sb_member_pin(q.g, q.in->nodeid >> 32);
	if (!c)
		return done(&q, q.in->opcode == FUSE_FLUSH || q.in->opcode == FUSE_RELEASE
					? 0
					: -ESTALE);
	answer_for(&q, c);
	sb_member_unpin(c);
	return true;
}

/* A crash counts against the common mount, unless the request runs for another one. */
static bool take(void *arg, const struct fuse_buf *buf)
{
	struct shared_sb *g = arg;
	struct activity *before = activity_begin(g->common->activity);
	bool is_taken;

	tsan_order_request();
	is_taken = route(g, buf);
	activity_end(before);
	return is_taken;
}

void shared_sb_note_device(struct shared_sb *g, unsigned dev_major, unsigned dev_minor)
{
	g->dev_major = dev_major;
	g->dev_minor = dev_minor;
}

int shared_sb_start(struct shared_sb *g, int fuse_fd, struct session **ret, char *err,
		    size_t err_size)
{
	int r = session_start(g->common, fuse_fd, ret, err, err_size);

	if (r == 0) {
		g->session = *ret;
		session_divert(*ret, take, g);
	}
	return r;
}

int shared_sb_resume(struct shared_sb *g, const struct session_saved *saved, struct session **ret,
		     char *err, size_t err_size)
{
	int r = session_resume(g->common, saved, ret, err, err_size);

	if (r == 0) {
		g->session = *ret;
		session_divert(*ret, take, g);
	}
	return r;
}

bool shared_sb_has_ended(const struct shared_sb *g)
{
	struct pollfd p = { .fd = session_fd(g->session) };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}
