// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/cow_fallocate.h"

#include "cow_blocks.h"
#include "cow_fsync-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/data/copyup.h"
#include "veneer/sys/file.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

/* Zeroing would destroy ownership that only the extents record so far (doc/internals/map.md), also
 * where fsync has relied on it. So commit the map first. */
static int commit_before_zeroing(struct union_fs *t, struct inode *i, int fd)
{
	if (t->is_volatile || !t->can.has_true_extents || mapfile_is_durable(t->map, i->src.id))
		return 0;
	if (fdatasync(fd) < 0)
		return cow_fsync_failed(t, i);
	return mapfile_commit(t->map, i->src.id, true);
}

static int write_zeros(int fd, uint64_t off, uint64_t len)
{
	static const char zeros[64 * 1024];

	while (len) {
		size_t n = len < sizeof(zeros) ? len : sizeof(zeros);
		int r = file_pwrite(fd, zeros, n, (off_t)off);

		if (r < 0)
			return r;
		off += n;
		len -= n;
	}
	return 0;
}

/* Make whole blocks of a partial file own and zero: holes or unwritten extents, which only the map
 * can tell from blocks of the lower file. */
static int zero_blocks(const struct cow_file *f, int mode, uint64_t off, uint64_t len)
{
	struct inode *i = f->inode;
	const bool is_punch = mode & FALLOC_FL_PUNCH_HOLE;
	int r = mapfile_reserve(i->src.map, len >> BLK_SHIFT);

	if (r == 0)
		r = commit_before_zeroing(f->tree, i, f->fd);
	if (r == 0)
		r = mapfile_expect_zeros(i->src.map, i->src.id, off >> BLK_SHIFT, len >> BLK_SHIFT);
	if (r < 0)
		return r;
	if (fallocate(f->fd,
		      (is_punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) |
			      FALLOC_FL_KEEP_SIZE,
		      (off_t)off, (off_t)len) < 0) {
		/* Written zeros must not make the file longer. */
		r = errno == EOPNOTSUPP
			    ? write_zeros(f->fd, off, off + len > f->size ? f->size - off : len)
			    : -errno;
		if (r < 0)
			return r;
	}
	cow_blocks_count(f, off >> BLK_SHIFT, (off + len) >> BLK_SHIFT, off, len);
	r = mapfile_own_zeros(i->src.map, i->src.id, off >> BLK_SHIFT, len >> BLK_SHIFT);
	union_fs_note_own(f->tree);
	return r == 0 ? mapfile_must_sync(i->src.map, i->src.id) : r;
}

static int zero_partial(const struct cow_file *f, int mode, uint64_t off, uint64_t end)
{
	static const char zeros[2 * BLK_BYTES]; /* parts of two blocks at most */
	uint64_t first = BLK_END(off), last;
	int r = 0;

	end = MIN(end, f->size);
	if (off >= end)
		return 0;
	/* The last block of the file is whole when the range reaches its end. */
	last = end == f->size ? BLK_END(end) : BLK_START(end);
	if (first >= last)
		return cow_blocks_write(f, zeros, end - off, off);
	if (off < first)
		r = cow_blocks_write(f, zeros, first - off, off);
	if (r == 0)
		r = zero_blocks(f, mode, first, last - first);
	if (r == 0 && last < end)
		r = cow_blocks_write(f, zeros, end - last, last);
	return r;
}

/* At most a chunk. 1: no block from first on shows the lower file. */
static int take_chunk(struct union_fs *t, struct inode *i, int fd, blk_t first, blk_t end,
		      char *buf)
{
	struct cow_file f = { .tree = t, .inode = i, .fd = fd };
	uint64_t clip;
	int r;

	WRLOCK_SCOPE(&i->lock);
	if (!i->src.id)
		return 1;
	r = mapfile_clip(i->src.map, i->src.id, &clip);
	if (r == 0)
		r = cow_blocks_find_size(&f);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	clip = BLK_END(MIN(clip, f.size)) >> BLK_SHIFT;
	end = MIN(end, clip);
	if (first >= end)
		return 1;
	r = mapfile_reserve(i->src.map, end - first);
	if (r == 0)
		r = cow_blocks_fill(&f, first, end, buf);
	if (r < 0)
		return r;
	cow_blocks_count(&f, first, end, 0, 0);
	i->is_synced = false;
	r = mapfile_own(i->src.map, i->src.id, first, end - first);
	union_fs_note_own(t);
	return r;
}

/* Plain allocation promises that a later write finds room, so the visible blocks of the lower file
 * are copied. Unwritten extents over them would break the extents' role as a second copy of the
 * map. Without room to split an unwritten extent, ext4 writes zeros into its rest, which after a
 * power cut would pass for own. */
static int take_range(struct union_fs *t, struct inode *i, int fd, uint64_t off, uint64_t end)
{
	blk_t blk = off >> BLK_SHIFT, last = BLK_END(end) >> BLK_SHIFT;
	_cleanup_(freep) char *buf = NULL;
	int r = 0;

	if (!i->src.id)
		return 0;
	buf = malloc(CHUNK_BYTES);
	if (!buf)
		return -ENOMEM;
	while (r == 0 && blk < last) {
		blk_t stop = (blk / CHUNK_BLKS + 1) * CHUNK_BLKS;

		stop = MIN(stop, last);
		r = take_chunk(t, i, fd, blk, stop, buf);
		blk = stop;
	}
	return r < 0 ? r : 0;
}

/* Plain allocation, after take_range. Blocks that still show the lower file are left alone: an
 * extent over them would make them own. */
static int allocate_partial(const struct cow_file *f, int mode, uint64_t off, uint64_t end)
{
	const struct source *src = &f->inode->src;
	const bool grows = end > f->size && !(mode & FALLOC_FL_KEEP_SIZE);
	blk_t blk = off >> BLK_SHIFT, last = BLK_END(end) >> BLK_SHIFT;
	int r = grows ? cow_blocks_settle_growth(f) : 0;

	while (r == 0 && blk < last) {
		uint64_t from, to;
		bool is_own;
		blk_t n;

		r = mapfile_run(src->map, src->id, blk, last - blk, &is_own, &n);
		if (r < 0)
			return r == -ENOENT ? -EIO : r;
		from = blk << BLK_SHIFT > off ? blk << BLK_SHIFT : off;
		to = (blk + n) << BLK_SHIFT < end ? (blk + n) << BLK_SHIFT : end;
		if (is_own && fallocate(f->fd, mode, (off_t)from, (off_t)(to - from)) < 0)
			r = -errno;
		blk += n;
	}
	if (r == 0 && grows) {
		struct stat st;

		if (fstat(f->fd, &st) < 0 ||
		    ((uint64_t)st.st_size < end && ftruncate(f->fd, (off_t)end) < 0))
			r = -errno;
	}
	return r;
}

/* fallocate(2) sets a file's times even if it changes nothing else. Failing to set them is no
 * reason to fail the finished request. */
static void touch(int fd)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };

	utimensat(fd, "", times, AT_EMPTY_PATH);
}

static int fallocate_partial(struct union_fs *t, struct inode *i, int fd, int mode, uint64_t off,
			     uint64_t len)
{
	const int zeroing = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
	struct cow_file f = { .tree = t, .inode = i, .fd = fd };
	int r;

	if (mode & ~(zeroing | FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	r = cow_blocks_find_size(&f);
	if (r < 0)
		return r;
	if (!(mode & zeroing)) {
		r = allocate_partial(&f, mode, off, off + len);
	} else {
		r = cow_blocks_settle_growth(&f);
		if (r == 0)
			r = zero_partial(&f, mode, off, off + len);
		if (r == 0 && (mode & FALLOC_FL_ZERO_RANGE) && !(mode & FALLOC_FL_KEEP_SIZE) &&
		    off + len > f.size)
			r = allocate_partial(&f, 0, f.size, off + len);
	}
	if (r == 0)
		touch(fd);
	return r;
}

int cow_fallocate(struct union_fs *t, struct inode *i, int mode, off_t off, off_t len)
{
	_cleanup_(closep) int own = -1;
	uint64_t room = 0;
	int fd, r = copyup_inode(t, i, NULL);

	if (r < 0)
		return r;
	if (i->is_damaged)
		return -EIO;
	if (off < 0 || len <= 0)
		return -EINVAL;
	fd = upper_pin_writable(t, i, &own);
	if (fd < 0)
		return fd;
	r = mode & FALLOC_FL_PUNCH_HOLE
		    ? 0
		    : quota_claim_range(t->quota, fd, (uint64_t)off, (uint64_t)len, &room);
	if (r < 0) {
		fd_cache_unpin(&i->src.fd);
		return r;
	}
	if (!(mode & ~FALLOC_FL_KEEP_SIZE))
		r = take_range(t, i, fd, (uint64_t)off, (uint64_t)off + (uint64_t)len);
	if (r == 0) {
		rwlock_wrlock(&i->lock);
		if (i->src.id)
			r = fallocate_partial(t, i, fd, mode, (uint64_t)off, (uint64_t)len);
		else
			r = fallocate(fd, mode, off, len) < 0 ? -errno : 0;
		rwlock_unlock(&i->lock);
	}
	if (mode & FALLOC_FL_KEEP_SIZE && !(mode & FALLOC_FL_PUNCH_HOLE))
		quota_note_ahead(t->quota, fd);
	quota_settle(t->quota, fd, room, 0);
	fd_cache_unpin(&i->src.fd);
	return r;
}
