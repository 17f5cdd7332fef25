// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/copy_range.h"

#include "copy_reference.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#define COPY_MAX  ((size_t)64 << 20) /* per request, as a copy cannot be interrupted */
#define COPY_STEP ((size_t)1 << 20) /* read and written at a time */

/* Lock in order of address; a node id may change meanwhile. */
static void lock_both(struct inode *from, struct inode *to) UNCHECKED_LOCKS
{
	if ((uintptr_t)from < (uintptr_t)to)
		rwlock_rdlock(&from->lock);
	rwlock_wrlock(&to->lock);
	if ((uintptr_t)from > (uintptr_t)to)
		rwlock_rdlock(&from->lock);
}

static void unlock_both(struct inode *from, struct inode *to) UNCHECKED_LOCKS
{
	rwlock_unlock(&to->lock);
	if (from != to)
		rwlock_unlock(&from->lock);
}

/* Can [off, end of file) be written without a record in the map? True of an ordinary file, and of a
 * partial file past the visible part of the lower file. 1, 0 or -errno. */
static int speaks_alone(struct inode *to, int fd, uint64_t off)
{
	struct stat st;
	uint64_t clip;
	int r;

	if (to->is_damaged)
		return -EIO;
	if (!to->src.id)
		return 1;
	r = mapfile_clip(to->src.map, to->src.id, &clip);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	/* A clip past the end has yet to be settled (cow.c). */
	if (fstat(fd, &st) < 0)
		return -errno;
	return clip <= (uint64_t)st.st_size &&
	       off >= ((clip + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1));
}

/* Copy the first run of [off, off + len) of top by copy_file_range(2). Bytes; 0: not possible this
 * way. */
static ssize_t copy_run(struct source *top, uint64_t off, int to, off_t off_to, size_t len)
{
	struct run run;
	ssize_t n;
	int fd, r = run_find(top, off, len, &run);

	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	if (!run.src)
		return 0;
	fd = source_pin(run.src);
	if (fd < 0)
		return fd;
	do {
		off_t in = (off_t)off, out = off_to;

		n = copy_file_range(fd, &in, to, &out, run.len, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		n = errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG ? -errno
											 : 0;
	fd_cache_unpin(&run.src->fd);
	return n;
}

/* One range to copy. */
struct span {
	struct inode *from, *to;
	off_t off, off_to;
	size_t len;
	/* length of the request if it copies between two files at equal offsets; else 0 */
	size_t all;
};

/* Under both locks; fd is the upper file of s->to. Copies as much as copy_file_range(2) can; 0:
 * nothing. */
static ssize_t copy_below(struct union_fs *t, const struct span *s, int fd)
{
	struct inode *from = s->from;
	size_t len = s->len;
	struct source *top;
	off_t size = 0;
	uint64_t room;
	size_t done = 0;
	ssize_t n;
	int r = speaks_alone(s->to, fd, (uint64_t)s->off_to);

	if (r <= 0)
		return r;
	r = read_top(t, from, &top);
	if (r == 0)
		r = read_size(t, from, &size);
	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	if (s->off >= size)
		return 0;
	if (len > (size_t)(size - s->off))
		len = (size_t)(size - s->off);
	/* Without room for all of it, copy through memory piece by piece. */
	if (quota_claim_range(t->quota, fd, (uint64_t)s->off_to, len, &room) < 0)
		return 0;
	/* Pin the descriptor for source_pin, which does not know inodes. */
	if (from->has_upper && (r = upper_pin(t, from)) < 0) {
		quota_settle(t->quota, -1, room, 0);
		return r;
	}
	do {
		n = copy_run(top, (uint64_t)s->off + done, fd, s->off_to + (off_t)done, len - done);
		if (n > 0)
			done += (size_t)n;
	} while (n > 0 && done < len);
	if (from->has_upper)
		fd_cache_unpin(&from->src.fd);
	quota_settle(t->quota, fd, room, 0);
	return done ? (ssize_t)done : n;
}

/* Copy through memory, which works for every pair of files. */
static ssize_t copy_step(struct union_fs *t, const struct span *s)
{
	const size_t step = MIN(s->len, COPY_STEP);
	_cleanup_(freep) char *buf = malloc(step);
	ssize_t n;
	int r;

	if (!buf)
		return -ENOMEM;
	n = read_file(t, s->from, buf, step, s->off);
	if (n <= 0)
		return n;
	r = cow_write(t, s->to, buf, (size_t)n, s->off_to);
	return r < 0 ? r : n;
}

static ssize_t copy_some(struct union_fs *t, const struct span *s)
{
	_cleanup_(closep) int own = -1;
	int fd = upper_pin_writable(t, s->to, &own);
	ssize_t n;

	if (fd < 0)
		return fd;
	lock_both(s->from, s->to);
	n = (ssize_t)copy_reference_make(
		t,
		&(struct copy_reference){
			.from = s->from, .to = s->to, .off = (uint64_t)s->off_to, .len = s->all },
		fd);
	n = n ?: copy_below(t, s, fd);
	unlock_both(s->from, s->to);
	fd_cache_unpin(&s->to->src.fd);
	return n ? n : copy_step(t, s);
}

/* Limit a copy within one file to its current end, however far the copy extends the file;
 * overlapping ranges are -EINVAL. The kernel checks both, unless it knows the file by two node
 * ids. */
static int within_one(struct union_fs *t, struct inode *i, off_t off_from, off_t off_to,
		      size_t *len)
{
	off_t size;
	int r = read_size(t, i, &size);

	if (r < 0)
		return r;
	if (off_from >= size)
		*len = 0;
	else if (*len > (size_t)(size - off_from))
		*len = (size_t)(size - off_from);
	return *len && off_to < off_from + (off_t)*len && off_from < off_to + (off_t)*len ? -EINVAL
											  : 0;
}

ssize_t copy_range(struct union_fs *t, struct inode *from, off_t off_from, struct inode *to,
		   off_t off_to, size_t len)
{
	const size_t all = off_from == off_to && from != to ? len : 0;
	size_t done = 0;
	ssize_t n;

	if (len > COPY_MAX)
		len = COPY_MAX;
	n = from == to ? within_one(t, from, off_from, off_to, &len) : 0;
	if (n == 0)
		n = copyup_inode(t, to, NULL);
	if (n < 0)
		return n;
	while (done < len) {
		n = copy_some(t, &(struct span){ .from = from,
						 .to = to,
						 .off = off_from + (off_t)done,
						 .off_to = off_to + (off_t)done,
						 .len = len - done,
						 .all = done ? 0 : all });
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done ? (ssize_t)done : n;
}
