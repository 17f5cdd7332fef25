// SPDX-License-Identifier: Apache-2.0
/* Lays the range out in segments and pins the windows that may serve them. Then fills the windows
 * and reads the other segments into the buffer, each at its offset, several runs together. A
 * segment whose window failed is read too. */
#include "veneer/data/read_plan.h"

#include "read_batch.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/data/read.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/upper.h"

#include <stdatomic.h>

/* Smaller requests cost as much by pread (measured), so they map no window. Smaller runs of a
 * request map none either: their pages would be read without the kernel's readahead, six times as
 * slowly (measured). */
#define PIECES_MIN (64u << 10)
#define FILES_MAX  8 /* files of a chain that are mapped; the others are read */

struct segment {
	struct run run;
	bool is_rest; /* run.src stands for the whole rest of the chain */
	struct mmap_cache_part *part; /* NULL: to be read */
};

/* A file of a lower layer, as it is during this request. */
struct lower {
	struct source *src; /* pinned, unless file.fd is -1 */
	struct mmap_cache_file file;
};

struct layout {
	struct source *upper; /* never mapped, as its blocks change; NULL: none */
	struct read_plan *pieces;
	struct segment segments[READ_PLAN_MAX];
	size_t n;
	struct lower lowers[FILES_MAX];
	size_t nlowers;
};

static struct lower *lower_of(struct layout *l, struct source *src)
{
	struct lower *w;
	int fd;

	for (size_t k = 0; k < l->nlowers; k++)
		if (l->lowers[k].src == src)
			return &l->lowers[k];
	if (l->nlowers == FILES_MAX)
		return NULL;
	w = &l->lowers[l->nlowers++];
	w->src = src;
	w->file.owner = src->layer;
	fd = source_pin(src);
	w->file.fd = fd < 0 ? -1 : fd;
	/* Stat for each request: a truncated file must not be sent from a mapping. */
	if (fd < 0 || fstat(fd, &w->file.st) < 0)
		w->file.st.st_size = 0;
	else
		atomic_store_explicit(&src->layer->has_windows, true, memory_order_relaxed);
	return w;
}

static void let_go(struct layout *l)
{
	for (size_t k = 0; k < l->nlowers; k++)
		if (l->lowers[k].file.fd >= 0)
			fd_cache_unpin(&l->lowers[k].src->fd);
	l->nlowers = 0;
}

static void append(struct layout *l, const struct run *run, struct mmap_cache_part *part)
{
	l->segments[l->n++] = (struct segment){ .run = *run, .part = part };
}

/* Split one run into the windows that it touches, and a read for the rest. */
static void lay_run(struct layout *l, struct run run)
{
	const bool is_for_windows = run.src && run.src != l->upper && run.src->layer->is_mappable &&
				    run.len >= PIECES_MIN;
	struct lower *w = is_for_windows ? lower_of(l, run.src) : NULL;
	struct read_plan *p = l->pieces;

	/* Keep one segment for this run's end and one for the rest of the request. */
	while (w && run.len && l->n < READ_PLAN_MAX - 2 &&
	       run.off + run.len <= (uint64_t)w->file.st.st_size) {
		struct mmap_cache_part *part = &p->windows[p->nwindows];
		struct run piece = run;

		if (mmap_cache_pin(&w->file, run.off, run.len, part) < 0)
			break;
		p->nwindows++;
		piece.len = part->len;
		append(l, &piece, part);
		run.off += part->len;
		run.len -= part->len;
	}
	if (run.len)
		append(l, &run, NULL);
}

static int lay_out(struct layout *l, struct source *top, size_t len, uint64_t off)
{
	while (len) {
		struct run run = { .src = top, .off = off, .len = len };
		int r = 0;

		if (l->n == READ_PLAN_MAX - 1) {
			append(l, &run, NULL);
			l->segments[l->n - 1].is_rest = true;
			return 0;
		}
		r = run_find(top, off, len, &run);
		if (r < 0)
			return r;
		lay_run(l, run);
		off += run.len;
		len -= run.len;
	}
	return 0;
}

/* Read the segments without a window into buf, whose first byte is the file's at off. */
static int read_left(struct layout *l, char *buf, uint64_t off)
{
	struct read_batch b = { .n = 0 };
	int r = 0;

	for (size_t k = 0; k < l->n && r == 0; k++) {
		const struct run *run = &l->segments[k].run;
		char *dst = buf + (run->off - off);

		if (l->segments[k].is_rest)
			r = read_source(run->src, dst, run->len, run->off);
		else if (!l->segments[k].part)
			r = read_batch_add(&b, run, dst);
	}
	if (r == 0)
		r = read_batch_finish(&b);
	read_batch_abandon(&b);
	return r;
}

static void describe(const struct layout *l, char *buf, uint64_t off)
{
	struct read_plan *p = l->pieces;

	for (size_t k = 0; k < l->n; k++) {
		const struct segment *s = &l->segments[k];
		char *from = s->part ? s->part->p : buf + (s->run.off - off);
		struct iovec *last = p->niov ? &p->iov[p->niov - 1] : NULL;

		if (last && (char *)last->iov_base + last->iov_len == from)
			last->iov_len += s->run.len;
		else
			p->iov[p->niov++] =
				(struct iovec){ .iov_base = from, .iov_len = s->run.len };
	}
}

static int shared_sb(struct source *top, struct source *upper, char *buf, size_t len, uint64_t off,
		     struct read_plan *ret)
{
	struct layout l; /* large: not cleared for every read */
	int r;

	l.upper = upper;
	l.pieces = ret;
	l.n = l.nlowers = 0;
	r = lay_out(&l, top, len, off);
	if (r == 0) {
		mmap_cache_fill(ret->windows, ret->nwindows);
		for (size_t k = 0; k < l.n; k++)
			if (l.segments[k].part && l.segments[k].part->result < 0)
				l.segments[k].part = NULL;
		r = read_left(&l, buf, off);
	}
	let_go(&l);
	if (r < 0)
		return r;
	describe(&l, buf, off);
	return 0;
}

/* The number of bytes that a plain lower file has in the range. */
static ssize_t clip_plain(struct source *src, size_t len, off_t off)
{
	struct stat st;
	int fd = source_pin(src), r;

	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	fd_cache_unpin(&src->fd);
	if (r < 0)
		return r;
	if (off >= st.st_size)
		return 0;
	return len < (size_t)(st.st_size - off) ? (ssize_t)len : (ssize_t)(st.st_size - off);
}

static ssize_t clip_partial(struct union_fs *t, struct inode *i, size_t len, off_t off)
{
	off_t size;
	int r = read_size(t, i, &size);

	if (r < 0)
		return r;
	if (off >= size)
		return 0;
	return len < (size_t)(size - off) ? (ssize_t)len : (ssize_t)(size - off);
}

/* -EAGAIN: no window can serve this file. */
static ssize_t read_locked(struct union_fs *t, struct inode *i, void *buf, size_t len, off_t off,
			   struct read_plan *ret)
{
	struct source *top;
	ssize_t n = read_top(t, i, &top);

	if (n < 0)
		return n;
	/* On a remote file system the stat below is a round trip, and its answer is not needed. */
	if (source_is_plain(top) && (i->has_upper || !top->layer->is_mappable))
		return -EAGAIN;
	n = source_is_plain(top) ? clip_plain(top, len, off) : clip_partial(t, i, len, off);
	if (n <= 0)
		return n;
	if (i->has_upper) {
		/* Pin the descriptor for modules that do not know inodes. */
		int fd = upper_pin(t, i);

		if (fd < 0)
			return fd;
	}
	int r = shared_sb(top, i->has_upper ? &i->src : NULL, buf, (size_t)n, (uint64_t)off, ret);

	if (i->has_upper)
		fd_cache_unpin(&i->src.fd);
	return r < 0 ? r : n;
}

ssize_t read_plan_read(struct union_fs *t, struct inode *i, void *buf, size_t len, off_t off,
		       struct read_plan *ret)
{
	ssize_t n = -EAGAIN;

	if (len >= PIECES_MIN) {
		RDLOCK_SCOPE(&i->lock);
		n = read_locked(t, i, buf, len, off, ret);
	}
	if (n != -EAGAIN)
		return n == -EUCLEAN ? -EIO : n;
	n = read_file(t, i, buf, len, off);
	if (n > 0)
		ret->iov[ret->niov++] = (struct iovec){ .iov_base = buf, .iov_len = (size_t)n };
	return n;
}

void read_plan_release(struct read_plan *p)
{
	for (size_t k = 0; k < p->nwindows; k++)
		mmap_cache_unpin(p->windows[k].w);
	p->nwindows = 0;
	p->niov = 0;
}

void read_plan_doubt(struct read_plan *p)
{
	for (size_t k = 0; k < p->nwindows; k++)
		mmap_cache_drop(p->windows[k].w);
}
