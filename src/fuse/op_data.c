// SPDX-License-Identifier: Apache-2.0
#include "kernel_invalidate.h"
#include "op.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/page_events.h"
#include "veneer/base/stats.h"
#include "veneer/data/attr.h"
#include "veneer/data/copy_range.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/data/read_plan.h"
#include "veneer/jobs/flat_copy_worker.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/layer/image.h"
#include "veneer/passthrough/passthrough_table.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

#define ROOM_TRIES   6
#define ROOM_WAIT_US 100u /* the first time; then four times as long each time */
#define SEEK_TRIES   8
#define FORGET_TRIES 1000
#define FOLIO_MAX    (2u << 20) /* bytes, of the page cache */

/* One buffer a thread: allocated at the largest read it has seen, freed when the thread ends. */
static _Thread_local struct {
	char *data;
	size_t size;
} read_buf;

void op_data_thread_release(void)
{
	stats_memory_gives(STATS_MEM_BUFFERS, read_buf.data);
	free(read_buf.data);
	read_buf.data = NULL;
	read_buf.size = 0;
	page_events_thread_release();
}

/* Send one reply and ignore errors: the kernel ends a request whose reply it cannot copy (from a
 * mapping of a truncated file), and libfuse frees it in any case. */
static void reply_plan(fuse_req_t req, struct inode *i, struct read_plan *p)
{
	struct mount *m = op_mount(req);
	_cleanup_(freep) char *path = NULL;

	if (fuse_reply_iov(req, p->iov, p->niov) != -EFAULT || !p->nwindows)
		return;
	read_plan_doubt(p);
	path = inode_path(&m->tree, i);
	log_error("%s: cannot read %s: its lower file was truncated, or its layer fails",
		  m->opts.mountpoint, path ? path : "a file");
}

/* The kernel keeps no page of such an open. */
static bool is_direct(const struct mount *m, const struct fuse_file_info *fi)
{
	return m->tree.backing && op_handle_way(fi->fh) == PASSTHROUGH_TABLE_WAY_DIRECT;
}

/* Does this reply to READ become pages that the page_dup_limiter counts? */
static bool describe_pages(fuse_req_t req, struct inode *i, off_t off, size_t len,
			   const struct fuse_file_info *fi, struct page_dup_limiter_note *ret)
{
	struct mount *m = op_mount(req);

	ret->first.mount = atomic_load_explicit(&m->page_dup_number, memory_order_relaxed);
	if (!ret->first.mount || fi->flags & O_DIRECT || is_direct(m, fi) ||
	    (m->tree.backing && !inode_is_read_at_random(i)) ||
	    !page_dup_limiter_describe(i, &m->tree, (uint64_t)off, len, ret))
		return false;
	ret->first.reader = (uint32_t)fuse_req_ctx(req)->pid;
	return true;
}

/* Drop the own pages of the lower files: their bytes stay in the pages of the shared superblock,
 * and would be in memory twice. The kernel drops whole folios, which may begin before the range. */
static void drop_lower_pages(struct mount *m, struct inode *i, off_t off, size_t len)
{
	const off_t from = off & ~((off_t)FOLIO_MAX - 1);
	struct source *s;

	if (read_top(&m->tree, i, &s) < 0)
		return;
	for (; s; s = s->below) {
		int fd = source_pin(s);

		if (fd < 0)
			continue;
		posix_fadvise(fd, from, off + (off_t)len - from, POSIX_FADV_DONTNEED);
		fd_cache_unpin(&s->fd);
	}
}

/* Is this the common mount of a shared superblock (shared_sb.h)? */
static bool is_common(const struct mount *m)
{
	return m->is_sb_member && !m->node_base;
}

static ssize_t read_common(struct mount *m, struct inode *i, size_t size, off_t off,
			   struct read_plan *ret)
{
	ssize_t n = read_file(&m->tree, i, read_buf.data, size, off);

	if (n > 0) {
		ret->iov[0] = (struct iovec){ read_buf.data, (size_t)n };
		ret->niov = 1;
		drop_lower_pages(m, i, off, (size_t)n);
	}
	return n;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct inode *i = op_inode(req, ino);
	struct read_plan plan;
	ssize_t n;

	if (!i)
		return;
	plan.niov = 0;
	plan.nwindows = 0;
	if (size > read_buf.size) {
		char *p;

		stats_memory_gives(STATS_MEM_BUFFERS, read_buf.data);
		p = realloc(read_buf.data, size);
		stats_memory_took(STATS_MEM_BUFFERS, p ? p : read_buf.data);
		if (!p) {
			op_reply_err(req, -ENOMEM);
			return;
		}
		read_buf.data = p;
		read_buf.size = size;
	}
	if (is_common(op_mount(req)) && !(fi->flags & O_DIRECT))
		n = read_common(op_mount(req), i, size, off, &plan);
	else
		n = read_plan_read(&op_mount(req)->tree, i, read_buf.data, size, off, &plan);
	if (n < 0) {
		op_reply_err(req, (int)n);
	} else {
		struct page_dup_limiter_note note;
		bool stays = describe_pages(req, i, off, (size_t)n, fi, &note);

		if (op_mount(req)->trace && n > 0 && !inode_has_upper(i))
			trace_read(op_mount(req)->trace, inode_lower(i), off, (size_t)n);
		stats_add(STATS_READ_BYTES, (uint64_t)n);
		if (is_direct(op_mount(req), fi))
			inode_note_read(i, (uint64_t)off, (size_t)n);
		if (op_mount(req)->tree.backing && !inode_has_upper(i) &&
		    (fi->flags & O_ACCMODE) == O_RDONLY)
			flat_copy_worker_read(op_mount(req)->flat_copies, i, (size_t)n);
		reply_plan(req, i, &plan);
		/* Not before: the limiter may drop the pages without waiting for the reply. */
		if (stays)
			page_dup_limiter_sent(&note);
	}
	read_plan_release(&plan);
}

static int write_file(fuse_req_t req, struct inode *i, const char *data, size_t size, off_t off,
		      bool is_mapped)
{
	struct mount *m = op_mount(req);
	struct attr_setid setid;
	int r = killpriv_begin(req, i, is_mapped, &setid);

	if (r == 0)
		r = cow_write(&m->tree, i, data, size, off);
	return killpriv_end(m, i, &setid, r);
}

bool op_data_waits_for_room(fuse_req_t req, ssize_t r, unsigned *attempts)
{
	if ((r != -ENOSPC && r != -EDQUOT) || *attempts == ROOM_TRIES)
		return false;
	/* The first time the room may just have been freed. */
	if (*attempts > 0 && fd_cache_held(&op_mount(req)->tree.held) == 0)
		return false;
	usleep(ROOM_WAIT_US << 2 * (*attempts)++);
	return true;
}

/* Have the kernel drop the pages of a failed change, which may have changed some of the bytes, or
 * the size: the kernel does so itself only if a change succeeds. One at a time: the kernel may wait
 * for requests of these pages that other threads must answer. */
static void forget_pages(const struct mount *m, fuse_ino_t ino, off_t off, size_t len)
{
	static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	for (int i = 0; i < FORGET_TRIES; i++) {
		if (mutex_trylock(&lock)) {
			kernel_invalidate_forget_pages(negotiate_request_extra.notify_fd,
						       m->node_base | ino, off, (off_t)len);
			mutex_unlock(&lock);
			return;
		}
		usleep(1000);
	}
}

/* After a write through its pages, done or failed, the kernel drops times, size and blocks of the
 * inode itself. Some versions do not so for the write-back of a mapping, nor for an asynchronous
 * write past the pages when it is answered. */
static bool is_dropped_by_kernel(const struct mount *m, const struct fuse_file_info *fi)
{
	const bool is_past_pages = m->io == IO_DIRECT || fi->flags & O_DIRECT ||
				   op_handle_way(fi->fh) > PASSTHROUGH_TABLE_WAY_CACHED;

	return !fi->writepage && !is_past_pages;
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	unsigned attempts = 0;
	int r;

	if (!i)
		return;
	r = protect_may_change(m, i);
	if (r < 0) {
		op_reply_err(req, r);
		/* After the reply, for which the pages wait. No program shall read bytes that were
		 * stored through a mapping. */
		if (fi->writepage)
			forget_pages(m, ino, off, size);
		return;
	}
	if (m->trace && !inode_has_upper(i))
		trace_write(m->trace, inode_lower(i));
	if (!fi->writepage)
		resend_state_change_begin(req, i);
	if (is_dropped_by_kernel(m, fi))
		negotiate_request_extra.renewed = ino;
	do {
		r = write_file(req, i, data, size, off, fi->writepage);
	} while (op_data_waits_for_room(req, r, &attempts));
	if (!fi->writepage)
		attr_change_end(i);
	if (r < 0) {
		op_reply_err(req, r);
	} else {
		stats_add(STATS_WRITE_BYTES, size);
		fuse_reply_write(req, size);
	}
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);

	(void)fi;
	if (!i)
		return;
	/* After ENOSYS the kernel sends no more FSYNC and returns 0 itself. */
	if (m->tree.is_volatile)
		op_reply_err(req, -ENOSYS);
	else
		op_reply_err(req, cow_fsync(&m->tree, i, datasync));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	unsigned attempts = 0;
	int r;

	(void)fi;
	if (!i)
		return;
	resend_state_change_begin(req, i);
	do {
		r = protect_may_change(m, i);
		if (r == 0)
			r = killpriv_clear_unless_privileged(req, i);
		if (r == 0)
			r = cow_fallocate(&m->tree, i, mode, off, len);
	} while (op_data_waits_for_room(req, r, &attempts));
	attr_change_end(i);
	if (r < 0)
		forget_pages(m, ino, off, (size_t)len);
	op_reply_err(req, r);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_from, off_t off_from,
			       struct fuse_file_info *fi_from, fuse_ino_t ino_to, off_t off_to,
			       struct fuse_file_info *fi_to, size_t len, int flags)
{
	struct inode *from = op_inode(req, ino_from), *to = from ? op_inode(req, ino_to) : NULL;
	unsigned attempts = 0;
	ssize_t n;

	(void)fi_from;
	(void)fi_to;
	if (!to)
		return;
	resend_state_change_begin(req, to);
	do {
		n = flags ? -EINVAL : protect_may_change(op_mount(req), to);
		if (n == 0)
			n = killpriv_clear_unless_privileged(req, to);
		if (n == 0)
			n = copy_range(&op_mount(req)->tree, from, off_from, to, off_to, len);
	} while (op_data_waits_for_room(req, n, &attempts));
	attr_change_end(to);
	if (n < 0) {
		forget_pages(op_mount(req), ino_to, off_to, len);
		op_reply_err(req, (int)n);
	} else {
		fuse_reply_write(req, (size_t)n);
	}
}

/* The kernel may hold changed pages of a mapped file in a range that is a hole here: have it write
 * them. It drops the others of the range too, which are zeros. One at a time: the kernel may wait
 * for requests of these pages that other threads must answer. False: another thread does it. */
static bool flush_mapped(const struct mount *m, struct inode *i, off_t from, off_t end)
{
	static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (!mutex_trylock(&lock))
		return false;
	kernel_invalidate_forget_pages(negotiate_request_extra.notify_fd,
				       m->node_base | inode_id(i), from, end - from);
	mutex_unlock(&lock);
	return true;
}

static void flush_kept(const struct mount *m, struct inode *i)
{
	for (int k = 0; k < FORGET_TRIES && !flush_mapped(m, i, 0, 0); k++)
		usleep(1000);
}

/* SEEK_DATA: the skipped range must really be a hole. -ENXIO: no data follows. */
static off_t seek_data(struct mount *m, struct inode *i, off_t off)
{
	struct union_fs *t = &m->tree;
	off_t pos = read_seek(t, i, off, SEEK_DATA), size;
	int r;

	if (pos == off || (pos < 0 && pos != -ENXIO))
		return pos;
	r = read_size(t, i, &size);
	if (r < 0 || off >= size)
		return r < 0 ? r : -ENXIO;
	/* Claiming data is never wrong. */
	return flush_mapped(m, i, off, pos < 0 ? size : pos) ? read_seek(t, i, off, SEEK_DATA)
							     : off;
}

static off_t seek_hole(struct mount *m, struct inode *i, off_t off)
{
	struct union_fs *t = &m->tree;
	off_t pos = read_seek(t, i, off, SEEK_HOLE), size, end;
	int r = read_size(t, i, &size);

	for (int attempt = 0; r == 0 && pos >= 0 && pos < size; attempt++) {
		off_t again;

		end = read_seek(t, i, pos, SEEK_DATA);
		if (end < 0)
			end = size;
		if (attempt == SEEK_TRIES || !flush_mapped(m, i, pos, end))
			return size;
		again = read_seek(t, i, pos, SEEK_HOLE);
		if (again < end)
			return again;
		pos = again;
	}
	return r < 0 ? r : pos;
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	off_t pos;

	(void)fi;
	if (!i)
		return;
	if (whence != SEEK_DATA && whence != SEEK_HOLE) {
		op_reply_err(req, -EINVAL);
		return;
	}
	/* The size is the kernel's until it has written its kept pages. */
	if (mount_keeps_writes(m))
		flush_kept(m, i);
	/* The kernel passes on any number that the program gave. */
	if (off < 0)
		pos = -ENXIO;
	else
		pos = whence == SEEK_DATA ? seek_data(m, i, off) : seek_hole(m, i, off);
	if (pos < 0)
		op_reply_err(req, (int)pos);
	else
		fuse_reply_lseek(req, pos);
}

static ssize_t read_upper_link(struct union_fs *t, struct inode *i, char *target, size_t size)
{
	int fd = upper_pin(t, i);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", target, size);
	n = n < 0 ? -errno : n;
	upper_unpin(i);
	return n;
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = op_mount(req);
	struct inode *i = op_inode(req, ino);
	char target[PATH_MAX + 1];
	ssize_t n;

	if (!i)
		return;
	n = inode_has_upper(i)
		    ? read_upper_link(&m->tree, i, target, sizeof(target) - 1)
		    : image_readlink(m->tree.image, inode_lower(i), target, sizeof(target) - 1);
	if (n < 0) {
		op_reply_err(req, (int)n);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

void op_data_install(struct fuse_lowlevel_ops *ops)
{
	ops->read = op_read;
	ops->write = op_write;
	ops->fsync = op_fsync;
	ops->fallocate = op_fallocate;
	ops->copy_file_range = op_copy_file_range;
	ops->lseek = op_lseek;
	ops->readlink = op_readlink;
}
