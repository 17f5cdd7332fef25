// SPDX-License-Identifier: Apache-2.0
/* Where each open file gets its bytes from. A mount answers all opens in one of three modes:
 *
 * cached       ENOSYS, once: the kernel sends no OPEN from then on, all pages are the mount's
 * direct       each read and write is a request, no pages are kept but for mappings
 * passthrough  the kernel reads and writes a backing file where there is one that holds all the
 *              bytes, and sends requests for the others
 *
 * A handle contains the way of its open (op_handle, passthrough_table.h): it means the same to any
 * server. Where the server keeps locks, every open is answered, and flushed. */
#include "op.h"
#include "page_fill.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/data/copy_range.h"
#include "veneer/data/create.h"
#include "veneer/passthrough/passthrough_select.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define TAKE_TRIES     16
#define SWITCH_WAIT_US 300 /* a close is under way more often than not */
#define SWITCH_WAITS   4

/* ---- which mode ---- */

/* Make a file like the ones to be registered: on the upper's file system if there is an upper. */
static int probe_file(const struct mount *m)
{
	int fd = m->tree.upper ? openat(m->tree.workfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
			       : -1;

	return fd >= 0 ? fd : memfd_create("veneer-probe", MFD_CLOEXEC);
}

/* In a user namespace the kernel agrees to passthrough and then refuses every file. */
static int start_passthrough(struct mount *m, struct fuse_session *se)
{
	_cleanup_(closep) int fd = probe_file(m);
	struct passthrough_table *b;
	uint32_t id;
	int r;

	if (!m->has_passthrough)
		return -EOPNOTSUPP;
	if (fd < 0)
		return -errno;
	r = passthrough_table_new(fuse_session_fd(se), NULL, PASSTHROUGH_TABLE_MAX, &b);
	if (r < 0)
		return r;
	r = passthrough_table_register(b, fd, &id);
	if (r < 0) {
		passthrough_table_free(b);
		return r;
	}
	passthrough_table_unregister(b, id);
	m->tree.backing = b;
	return 0;
}

static enum io_mode choose_mode(struct mount *m, struct fuse_session *se)
{
	int r;

	if (m->opts.io == IO_CACHED || m->opts.io == IO_DIRECT)
		return m->opts.io;
	r = start_passthrough(m, se);
	if (r < 0 && m->opts.io == IO_PASSTHROUGH)
		log_warn("%s: files cannot be passed through (%s): io=cached", m->opts.mountpoint,
			 strerror(-r));
	return r < 0 ? IO_CACHED : IO_PASSTHROUGH;
}

enum io_mode op_open_settle(struct mount *m, struct fuse_session *se)
{
	static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (m->io == IO_AUTO) {
		LOCK_SCOPE(&lock);
		if (m->io == IO_AUTO)
			m->io = choose_mode(m, se);
	}
	return m->io;
}

/* Called with the table's lock. */
static int restore_slot(void *arg, struct node_slot *s)
{
	return passthrough_table_restore(arg, s);
}

int op_open_resume(struct mount *m, struct fuse_session *se, enum io_mode io)
{
	struct passthrough_table *b;
	int r;

	if (io == IO_PASSTHROUGH) {
		r = passthrough_table_new(fuse_session_fd(se), NULL, PASSTHROUGH_TABLE_MAX, &b);
		if (r < 0)
			return r;
		r = inode_each_slot(&m->tree, restore_slot, b);
		if (r < 0) {
			passthrough_table_free(b);
			return r;
		}
		m->tree.backing = b;
	}
	m->io = io;
	return 0;
}

/* ---- which way ---- */

struct opening {
	struct mount *m;
	struct inode *i;
	struct node_slot *slot;
	struct passthrough_select offer;
	struct passthrough_table_ask ask;
	bool cannot_back; /* tried, and refused */
};

static bool is_small(const struct opening *o)
{
	return o->offer.size <= PASSTHROUGH_SELECT_SMALL_BYTES && !o->offer.is_program;
}

/* The mount's own pages agree with every writer, and small files cost little in them. Another open
 * of a remote file takes a round trip, and makes many file systems drop its pages. */
static bool is_for_pages(const struct opening *o)
{
	if (o->offer.is_remote && o->m->opts.io != IO_PASSTHROUGH)
		return true;
	if (o->m->opts.coherence == COHERENCE_FAST)
		return false;
	if (is_small(o) && (!o->offer.is_static || o->m->opts.coherence == COHERENCE_STRICT))
		return true;
	return o->m->tree.upper && passthrough_select_is_followed(&o->offer);
}

/* Where no file has all the bytes. Mounts go on sharing unchanged ones in the lower file's pages;
 * but a program would be mapped, which takes pages of the mount, and at random each read would be a
 * request. */
static enum passthrough_table_way wish_without(const struct opening *o)
{
	const enum partial_mode mode = o->m->opts.partial;

	if (!o->offer.is_partial || o->ask.writes || mode == PARTIAL_CACHED ||
	    (mode == PARTIAL_AUTO && o->offer.is_program))
		return PASSTHROUGH_TABLE_WAY_CACHED;
	return mode == PARTIAL_DIRECT || !(is_small(o) || inode_is_read_at_random(o->i))
		       ? PASSTHROUGH_TABLE_WAY_DIRECT
		       : PASSTHROUGH_TABLE_WAY_CACHED;
}

static enum passthrough_table_way wish_of(const struct opening *o)
{
	if (o->cannot_back)
		return wish_without(o);
	switch (o->offer.kind) {
	case PASSTHROUGH_TABLE_UPPER:
		return PASSTHROUGH_TABLE_WAY_BACKED;
	case PASSTHROUGH_TABLE_LOWER:
		return is_for_pages(o) ? PASSTHROUGH_TABLE_WAY_CACHED
				       : PASSTHROUGH_TABLE_WAY_BACKED;
	case PASSTHROUGH_TABLE_FLAT:
		return o->m->opts.partial != PARTIAL_AUTO || is_for_pages(o)
			       ? wish_without(o)
			       : PASSTHROUGH_TABLE_WAY_BACKED;
	default:
		return wish_without(o);
	}
}

static int look(struct opening *o)
{
	int r = passthrough_select_look(&o->m->tree, o->i, o->ask.writes, &o->offer);

	if (r < 0)
		return r;
	/* After ESTALE the kernel repeats an open once and not twice: a caller that came here to
	 * write must not get another ESTALE. */
	if (passthrough_table_is_below(o->offer.kind) &&
	    (o->slot->is_successor || passthrough_table_was_left(o->m->tree.backing, o->slot)))
		o->cannot_back = true;
	o->ask.offer = o->cannot_back ? PASSTHROUGH_TABLE_NONE : o->offer.kind;
	o->ask.wish = wish_of(o);
	o->ask.otherwise = wish_without(o);
	return 0;
}

/* False: the kernel refuses, or there is no descriptor; the open is then not passed through. */
static bool register_offer(struct opening *o, uint32_t *ret_id)
{
	struct union_fs *t = &o->m->tree;
	struct passthrough_select_file f;
	int r = passthrough_select_open(t, o->i, &o->offer, &f);

	if (r == 0) {
		r = passthrough_table_register(t->backing, f.fd, ret_id);
		passthrough_select_close(&f);
	}
	if (r < 0)
		log_debug("cannot register a file: %s", strerror(-r));
	return r == 0;
}

/* A lower file may be passed through only if it still is what the inode shows, now that the open is
 * counted: an open for writing from here on finds that count. So does what makes a file of the
 * upper a copy of a lower one (copy_range.h). */
static bool is_outdated(struct opening *o)
{
	struct passthrough_table *b = o->m->tree.backing;
	struct passthrough_select now;

	if (!passthrough_table_is_below(o->ask.offer))
		return passthrough_table_is_upper(passthrough_table_kind_in_use(b, o->slot)) &&
		       !passthrough_select_is_whole(o->i);
	return passthrough_table_is_lower(b, o->slot) &&
	       (passthrough_select_look(&o->m->tree, o->i, false, &now) < 0 ||
		now.kind != o->ask.offer);
}

/* Take one of the first three ways, counted; SWITCH or STALE, or -errno. */
static int take_way(struct opening *o, uint32_t *ret_id)
{
	struct passthrough_table *b = o->m->tree.backing;
	unsigned waits = 0;

	for (unsigned attempt = 0; attempt < TAKE_TRIES; attempt++) {
		uint32_t fresh = 0;
		int way, r = look(o);

		if (r < 0)
			return r;
		o->ask.waits = waits < SWITCH_WAITS;
		way = passthrough_table_take(b, o->slot, &o->ask, 0, ret_id);
		if (way == PASSTHROUGH_TABLE_WAY_REGISTER) {
			o->cannot_back = !register_offer(o, &fresh);
			if (o->cannot_back)
				continue;
			way = passthrough_table_take(b, o->slot, &o->ask, fresh, ret_id);
			if (way != PASSTHROUGH_TABLE_WAY_BACKED || *ret_id != fresh)
				passthrough_table_unregister(b, fresh);
		}
		if (way == PASSTHROUGH_TABLE_WAY_SWITCH && o->ask.waits) {
			waits++;
			usleep(SWITCH_WAIT_US);
			continue;
		}
		if (way != PASSTHROUGH_TABLE_WAY_BACKED || !is_outdated(o))
			return way;
		passthrough_table_drop(b, o->slot, PASSTHROUGH_TABLE_WAY_BACKED);
		usleep(SWITCH_WAIT_US); /* for another thread that finds the same */
	}
	return -EIO;
}

/* The kernel looks the name up again, gets the new id and opens that. */
static int leave_node(struct mount *m, struct inode *i, uint32_t node)
{
	int r;

	if (!inode_is_current(i, node))
		return -ESTALE;
	r = inode_renumber(&m->tree, i, node);
	if (r < 0)
		return r;
	stats_add(STATS_NODE_SWITCHES, 1);
	fuse_lowlevel_notify_inval_inode(negotiate_request_extra.session, node, -1, 0);
	return -ESTALE;
}

/* Stores through a mapping of a backing file send no request, also after the file is closed. */
static void expect_mappings(struct opening *o, uint32_t node)
{
	if (inode_is_mapped_past_us(o->i))
		return;
	inode_note_mapped(&o->m->tree, o->i);
	fuse_lowlevel_notify_inval_inode(negotiate_request_extra.session, node, -1, 0);
}

/* Each read and write is a request. Writes below the end of the file come at the same time:
 * cow_write takes no exclusive lock where blocks are own. */
static void use_requests(struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	fi->parallel_direct_writes = 1;
}

/* A copy can refer to the blocks of the file. */
static void note_source(const struct opening *o)
{
	struct passthrough_table *b = o->m->tree.backing;
	const bool is_source = !o->ask.writes && !inode_has_upper(o->i) &&
			       o->offer.size >= COPY_RANGE_REFERENCE_MIN;

	passthrough_table_note_source(b, o->ask.caller, is_source ? o->slot : NULL);
}

/* The thread is about to make a copy that refers to another file's blocks. That cannot be done to a
 * file that the kernel writes past us. */
static bool is_copy(const struct opening *o, int flags)
{
	return flags & O_CREAT && flags & O_EXCL &&
	       passthrough_table_is_copier(o->m->tree.backing, o->ask.caller);
}

static int open_node(fuse_req_t req, struct inode *i, uint32_t node, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct opening o = { .m = m, .i = i, .slot = inode_slot(&m->tree, node) };
	uint32_t id;
	int way;

	if (!o.slot)
		return -ESTALE;
	o.ask.caller = (uint32_t)fuse_req_ctx(req)->pid;
	o.ask.writes = (fi->flags & O_ACCMODE) != O_RDONLY;
	o.cannot_back = is_copy(&o, fi->flags);
	way = take_way(&o, &id);
	passthrough_table_reap(m->tree.backing);
	if (way == PASSTHROUGH_TABLE_WAY_SWITCH || way == PASSTHROUGH_TABLE_WAY_STALE)
		return leave_node(m, i, node);
	if (way < 0)
		return way;
	note_source(&o);
	fi->fh = op_handle(m, (uint64_t)way);
	fi->noflush = !m->tree.locks;
	fi->keep_cache = way == PASSTHROUGH_TABLE_WAY_CACHED && m->opts.timeout_s > 0;
	if (way == PASSTHROUGH_TABLE_WAY_DIRECT)
		use_requests(fi);
	if (o.ask.writes)
		page_fill_wait(i);
	else if (fi->keep_cache && o.offer.kind == PASSTHROUGH_TABLE_LOWER && !o.offer.is_remote &&
		 !(fi->flags & O_DIRECT))
		page_fill_send(m, i, node, o.offer.size);
	if (way == PASSTHROUGH_TABLE_WAY_BACKED && passthrough_table_is_below(o.offer.kind) &&
	    m->trace)
		trace_open(m->trace, inode_lower(i));
	if (way == PASSTHROUGH_TABLE_WAY_BACKED) {
		fi->backing_id = (int32_t)id;
		fi->direct_io = m->opts.coherence == COHERENCE_STRICT &&
				passthrough_table_is_below(
					passthrough_table_kind_in_use(m->tree.backing, o.slot));
		if ((fi->flags & O_ACCMODE) == O_RDWR)
			expect_mappings(&o, node);
	}
	return 0;
}

static void close_node(struct mount *m, uint32_t node, uint64_t handle)
{
	struct node_slot *s = inode_slot(&m->tree, node);

	if (s && m->tree.backing)
		passthrough_table_drop(m->tree.backing, s,
				       (enum passthrough_table_way)op_handle_way(handle));
}

static void count_open(const struct fuse_file_info *fi)
{
	stats_add(fi->backing_id  ? STATS_OPENS_PASSTHROUGH
		  : fi->direct_io ? STATS_OPENS_DIRECT
				  : STATS_OPENS_CACHED,
		  1);
}

/* ---- requests ---- */

int op_open_leave_lower(struct mount *m, struct inode *i, fuse_ino_t ino)
{
	struct node_slot *s = m->tree.backing ? inode_slot(&m->tree, ino) : NULL;

	return s && passthrough_table_leave(m->tree.backing, s) ? leave_node(m, i, (uint32_t)ino)
								: 0;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	enum io_mode mode = op_open_settle(m, negotiate_request_extra.session);
	int r = 0;

	if (!i)
		return;
	fi->fh = op_handle(m, 0);
	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		r = protect_may_change(m, i)
			    ?: mode == IO_PASSTHROUGH ? protect_may_passthrough(m, i)
						      : 0;
	if (r < 0)
		;
	else if (mode == IO_CACHED && m->opts.timeout_s > 0 && !m->tree.locks)
		r = -ENOSYS;
	else if (mode == IO_CACHED)
		fi->keep_cache = m->opts.timeout_s > 0;
	else if (mode == IO_DIRECT)
		use_requests(fi);
	else if (mode == IO_PASSTHROUGH)
		r = open_node(req, i, (uint32_t)ino, fi);
	if (r < 0) {
		op_reply_err(req, r);
		return;
	}
	count_open(fi);
	if (fuse_reply_open(req, fi) == -ENOENT && mode == IO_PASSTHROUGH)
		close_node(m, (uint32_t)ino, fi->fh);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct intent *n = resend_state_begin(req, INTENT_RELEASE);

	op_lock_release(op_mount(req), ino, fi->fh);
	/* A dead server that had begun this may have counted it, so do not count it again. */
	if (n ? !n->is_begun : !negotiate_request_extra.is_resent) {
		intent_log_mark(n);
		close_node(op_mount(req), (uint32_t)ino, fi->fh);
	}
	op_reply_err(req, 0);
}

void op_open_reply_create(fuse_req_t req, struct inode *i, struct stat *st,
			  struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct fuse_entry_param e;
	int r = 0;

	op_fill_entry(m, i, st, &e);
	fi->fh = op_handle(m, 0);
	fi->noflush = !m->tree.locks;
	fi->keep_cache = m->opts.timeout_s > 0;
	if (op_open_settle(m, negotiate_request_extra.session) == IO_DIRECT)
		use_requests(fi);
	else if (m->io == IO_PASSTHROUGH)
		r = open_node(req, i, (uint32_t)e.ino, fi);
	if (r < 0) {
		inode_forget(&m->tree, e.ino, 1);
		op_reply_err(req, r);
		return;
	}
	e.attr_timeout = op_attr_timeout(m, i, e.ino);
	count_open(fi);
	/* An interrupted caller gets no reply. */
	if (fuse_reply_create(req, &e, fi) == -ENOENT) {
		close_node(m, (uint32_t)e.ino, fi->fh);
		inode_forget(&m->tree, e.ino, 1);
	}
}

void op_open_install(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
}
