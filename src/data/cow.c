// SPDX-License-Identifier: Apache-2.0
/* The order that nothing may change: room for the record is reserved, the data goes into the upper
 * file, the record says the blocks are own, the request is answered. A server that stops in between
 * leaves blocks that are still seen from below: the old content, complete. */
#include "veneer/data/cow.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/copyup.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"
#include "zero_blocks.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdatomic.h>
#include <string.h>

#define FSYNC_TRIES    4
#define AHEAD_MIN_BLKS 4
#define BLK_START(off) ((uint64_t)(off) & ~(uint64_t)(BLK_BYTES - 1))
#define BLK_END(off)   (((uint64_t)(off) + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1))

static bool all_own(struct inode *i, uint64_t off, uint64_t len, int *ret_error)
{
	blk_t blk = off >> BLK_SHIFT, end = BLK_END(off + len) >> BLK_SHIFT, n;
	bool is_own = true;

	*ret_error = 0;
	for (; blk < end && is_own; blk += n) {
		int r = mapfile_run(i->src.map, i->src.id, blk, end - blk, &is_own, &n);

		if (r < 0) {
			*ret_error = r == -ENOENT ? -EIO : r;
			return false;
		}
	}
	return is_own;
}

static int blk_is_own(struct inode *i, blk_t blk)
{
	int error;
	bool is_own = all_own(i, blk << BLK_SHIFT, 1, &error);

	return error ? error : is_own;
}

/* A file may have been cut, and the server killed before the map heard of it: what lies past the
 * end was cut off, so it must not come back when the file grows. */
static int settle_clip(struct inode *i, uint64_t size)
{
	uint64_t clip;
	int r = mapfile_clip(i->src.map, i->src.id, &clip);

	if (r == 0 && clip > size)
		r = mapfile_truncate(i->src.map, i->src.id, size);
	return r == -ENOENT ? -EIO : r;
}

/* Until a program is told. */
static int keep_sync_error(struct inode *i, int error)
{
	i->sync_error = error;
	return error;
}

/* Sync the data, then commit what was own before that. Other writers go on meanwhile. */
static int sync_and_commit(struct union_fs *t, struct inode *i, int fd, bool data_only)
{
	const file_id_t id = i->src.id;
	uint64_t change = id ? mapfile_change(t->map, id) : 0;
	enum mapfile_pending pending;
	int r;

	if ((t->can.wants_whole_sync ? syncfs(fd) : data_only ? fdatasync(fd) : fsync(fd)) < 0)
		return keep_sync_error(i, -errno);
	if (!id)
		return 0;
	pending = mapfile_pending(t->map, id);
	if (pending == MAPFILE_CLEAN)
		return 0;
	/* One sync is enough where the backing file system's extents survive only with their data:
	 * they are the second copy of the map. */
	r = mapfile_commit_since(t->map, id, change,
				 pending == MAPFILE_MUST_SYNC || !t->can.has_true_extents);
	/* The file became an ordinary one meanwhile. */
	return r == -ENOENT && !i->src.id ? 0 : r;
}

/* Likewise before the file grows, from size on. That it is so short may be on disk, since a crash
 * or by a sync of a process that does not ask us (sync(2)), and longer again it may get there
 * before the record does: then a crash would show the lower's where something else was on disk. */
static int settle_growth(struct union_fs *t, struct inode *i, int fd, uint64_t size)
{
	int r = settle_clip(i, size);
	int is_cut = r < 0 ? r : mapfile_is_cut(i->src.map, i->src.id);

	if (is_cut < 0)
		return is_cut == -ENOENT ? -EIO : is_cut;
	return is_cut && !t->is_volatile ? sync_and_commit(t, i, fd, true) : 0;
}

/* Copy the blocks of [first, end) that are not own from below, byte range clipped to size, by
 * chunks at most: that is what buf holds. */
static int fill_blocks(struct inode *i, int fd, blk_t first, blk_t end, uint64_t size, char *buf)
{
	while (first < end) {
		uint64_t off = first << BLK_SHIFT, len;
		blk_t n = end - first < CHUNK_BLKS ? end - first : CHUNK_BLKS;
		bool is_own;
		int r = mapfile_run(i->src.map, i->src.id, first, n, &is_own, &n);

		if (r < 0)
			return r == -ENOENT ? -EIO : r;
		first += n;
		if (is_own || off >= size)
			continue;
		len = MIN(n << BLK_SHIFT, size - off);
		r = read_source(&i->src, buf, len, off);
		if (r == 0)
			r = file_pwrite(fd, buf, len, (off_t)off);
		if (r == 0)
			r = zero_blocks_note(i, fd, buf, len, off);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Complete the blocks around a write, as an optimisation: where that fails, for want of memory or
 * room, or because the lower cannot be read there, those blocks are seen from below as before, and
 * the write has what it needs. */
static int fill_around(struct inode *i, int fd, blk_t first, blk_t data_first, blk_t data_end,
		       blk_t end, uint64_t size)
{
	_cleanup_(freep) char *chunk = NULL;
	int r;

	if (first == data_first && end == data_end)
		return 0;
	chunk = malloc(CHUNK_BYTES);
	if (!chunk)
		return -ENOMEM;
	r = fill_blocks(i, fd, first, data_first, size, chunk);
	return r == 0 ? fill_blocks(i, fd, data_end, end, size, chunk) : r;
}

/* A small file that was copied up without its content, for a change of its attributes, gets all of
 * it with the first write: a program that reads the raw upper sees it as it is
 * (COPYUP_WHOLE_MAX). */
static void widen_to_file(uint64_t size, blk_t *first, blk_t *end)
{
	blk_t all = (size + BLK_BYTES - 1) >> BLK_SHIFT;

	*first = 0;
	*end = all > *end ? all : *end;
}

/* Widen [*first, *end) to chunks of which the write covers at least half. */
static void widen_to_chunks(uint64_t off, uint64_t end_off, blk_t *first, blk_t *end)
{
	uint64_t head = off & ~(uint64_t)(CHUNK_BYTES - 1);
	uint64_t tail = (end_off - 1) & ~(uint64_t)(CHUNK_BYTES - 1);
	uint64_t head_end = head + CHUNK_BYTES < end_off ? head + CHUNK_BYTES : end_off;
	uint64_t tail_start = MAX(tail, off);

	if (head_end - off >= CHUNK_BYTES / 2) {
		*first = head >> BLK_SHIFT;
		if (head == tail)
			*end = (head >> BLK_SHIFT) + CHUNK_BLKS;
	}
	if (end_off - tail_start >= CHUNK_BYTES / 2) {
		*end = (tail >> BLK_SHIFT) + CHUNK_BLKS;
		if (head == tail)
			*first = tail >> BLK_SHIFT;
	}
}

/* The own blocks in a row that end before blk; looks back by a chunk at most. */
static blk_t own_before(struct inode *i, blk_t blk)
{
	blk_t from = blk > CHUNK_BLKS ? blk - CHUNK_BLKS : 0, run = 0, n;
	bool is_own;

	for (; from < blk && mapfile_run(i->src.map, i->src.id, from, blk - from, &is_own, &n) == 0;
	     from += n)
		run = is_own ? run + n : 0;
	return from < blk ? 0 : run;
}

/* A log that is synced record by record pays for each block that is new on the disk with a commit
 * of the file system's journal: 0.7 to 2.8 ms on ext4, where an overwrite takes 0.2 to 0.4. So a
 * write that goes on where own blocks end, after a sync, takes as many blocks again from below as
 * there are in that run, to the end of its chunk: never more than was written there, and after that
 * the log overwrites. */
static void widen_ahead(struct inode *i, uint64_t size, blk_t first, blk_t *end)
{
	blk_t all = (size + BLK_BYTES - 1) >> BLK_SHIFT, to, run;

	if (!i->is_synced || *end >= all)
		return;
	run = own_before(i, first);
	if (run < AHEAD_MIN_BLKS)
		return;
	to = (*end / CHUNK_BLKS + 1) * CHUNK_BLKS;
	to = to < *end + run ? to : *end + run;
	*end = MIN(to, all);
}

/* The bytes that complete the first and last block of a write, in front of and behind its data. */
struct edges {
	char head[BLK_BYTES], tail[BLK_BYTES];
	size_t head_len, tail_len;
};

static int read_edges(struct inode *i, uint64_t off, uint64_t end, uint64_t size, struct edges *e)
{
	uint64_t tail_end = BLK_END(end) < size ? BLK_END(end) : size;
	int r;

	e->head_len = e->tail_len = 0;
	if (off & (BLK_BYTES - 1)) {
		r = blk_is_own(i, off >> BLK_SHIFT);
		if (r < 0)
			return r;
		if (r == 0) {
			e->head_len = off & (BLK_BYTES - 1);
			r = read_source(&i->src, e->head, e->head_len, BLK_START(off));
			if (r < 0)
				return r;
		}
	}
	if (end < tail_end) {
		r = blk_is_own(i, end >> BLK_SHIFT);
		if (r < 0)
			return r;
		if (r == 0) {
			e->tail_len = tail_end - end;
			r = read_source(&i->src, e->tail, e->tail_len, end);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* For the counters, before [first, end) becomes own: what of it is seen from below, and was thus
 * taken from there where the data at off does not cover it. size is that of the file before. */
static void count_taken(struct inode *i, blk_t first, blk_t end, uint64_t off, uint64_t len,
			uint64_t size)
{
	uint64_t clip, below = 0, replaced = 0;
	blk_t blk = first, n, taken = 0;
	bool is_own;

	if (mapfile_clip(i->src.map, i->src.id, &clip) < 0)
		return;
	clip = MIN(clip, size);
	for (; blk < end && mapfile_run(i->src.map, i->src.id, blk, end - blk, &is_own, &n) == 0;
	     blk += n) {
		uint64_t from = blk << BLK_SHIFT, to = (blk + n) << BLK_SHIFT;

		if (is_own)
			continue;
		taken += n;
		to = MIN(to, clip);
		below += to > from ? to - from : 0;
		from = MAX(from, off);
		to = to < off + len ? to : off + len;
		replaced += to > from ? to - from : 0;
	}
	if (!taken)
		return;
	stats_add(STATS_COW_WRITES, 1);
	stats_add(STATS_COW_BYTES, taken << BLK_SHIFT);
	stats_add(STATS_FILL_BYTES, below - replaced);
}

/* Choose the blocks that a write takes along, which are not worth the last room that the upper may
 * take: *ret_room is claimed for them. */
static void choose_blocks(struct union_fs *t, struct inode *i, uint64_t off, uint64_t len,
			  uint64_t size, blk_t *first, blk_t *end, uint64_t *ret_room)
{
	const blk_t data_first = *first, data_end = *end;

	widen_to_chunks(off, off + len, first, end);
	/* A write that covers half a chunk is no log's record. */
	if (*end == data_end)
		widen_ahead(i, size, data_first, end);
	if (size <= COPYUP_WHOLE_MAX && off + len <= COPYUP_WHOLE_MAX)
		widen_to_file(size, first, end);
	*ret_room = (*end - *first - (data_end - data_first)) << BLK_SHIFT;
	if (quota_claim(t->quota, *ret_room, 0) < 0) {
		*first = data_first;
		*end = data_end;
		*ret_room = 0;
	}
}

/* Under i->lock for writing, i->src.fd pinned as fd. size is that of the file before. */
static int write_chosen(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			uint64_t off, uint64_t size, blk_t first, blk_t end)
{
	const blk_t data_first = off >> BLK_SHIFT, data_end = BLK_END(off + len) >> BLK_SHIFT;
	struct edges e;
	struct iovec iov[3];
	int r = mapfile_reserve(i->src.map, end - first);

	if (r == 0)
		r = zero_blocks_expect(i, fd, p, len, off);
	if (r == 0)
		r = read_edges(i, off, off + len, size, &e);
	if (r < 0)
		return r;
	iov[0] = (struct iovec){ e.head, e.head_len };
	iov[1] = (struct iovec){ (void *)p, len };
	iov[2] = (struct iovec){ e.tail, e.tail_len };
	r = file_pwritev(fd, iov, 3, (off_t)(off - e.head_len));
	if (r < 0)
		return r;
	count_taken(i, first, end, off, len, size);
	if (fill_around(i, fd, first, data_first, data_end, end, size) < 0) {
		first = data_first;
		end = data_end;
	}
	i->is_synced = false;
	r = zero_blocks_note(i, fd, p, len, off);
	if (r == 0)
		r = mapfile_own(i->src.map, i->src.id, first, end - first);
	union_fs_note_own(t);
	return r;
}

static int write_blocks(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			uint64_t off, uint64_t size)
{
	blk_t first = off >> BLK_SHIFT, end = BLK_END(off + len) >> BLK_SHIFT;
	uint64_t room;
	int r;

	choose_blocks(t, i, off, len, size, &first, &end, &room);
	r = write_chosen(t, i, fd, p, len, off, size, first, end);
	quota_settle(t->quota, -1, room, 0);
	return r;
}

static int write_partial(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			 uint64_t off)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (off + len > (uint64_t)st.st_size) {
		r = settle_growth(t, i, fd, (uint64_t)st.st_size);
		if (r < 0)
			return r;
	}
	return write_blocks(t, i, fd, p, len, off, (uint64_t)st.st_size);
}

static bool is_want_of_room(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/* All of it is own, and stays so. Where there is no room left to note that a block is zeros, what
 * has its place is written all the same. */
static int write_in_place(struct inode *i, int fd, const char *p, size_t len, off_t off)
{
	int r = i->src.id ? zero_blocks_expect(i, fd, p, len, (uint64_t)off) : 0;

	if (r < 0 && !is_want_of_room(r))
		return r;
	r = file_pwrite(fd, p, len, off);
	if (r < 0 || !i->src.id)
		return r;
	r = zero_blocks_note(i, fd, p, len, (uint64_t)off);
	return is_want_of_room(r) ? 0 : r;
}

/* There is room for it. */
static int write_claimed(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			 off_t off)
{
	bool in_place;
	int r = 0;

	pthread_rwlock_rdlock(&i->lock);
	in_place = !i->src.id || all_own(i, (uint64_t)off, len, &r);
	if (in_place) {
		/* Past the end of the file everything is own, but only once the map knows how short
		 * the file is: the slow way looks. */
		struct stat st;

		if (i->src.id && (fstat(fd, &st) < 0 || off + (off_t)len > st.st_size))
			in_place = false;
		else
			r = write_in_place(i, fd, p, len, off);
	}
	pthread_rwlock_unlock(&i->lock);
	if (!in_place && r == 0) {
		pthread_rwlock_wrlock(&i->lock);
		/* It may have become an ordinary file meanwhile. */
		r = i->src.id ? write_partial(t, i, fd, p, len, (uint64_t)off)
			      : write_in_place(i, fd, p, len, off);
		pthread_rwlock_unlock(&i->lock);
	}
	return r;
}

int cow_write(struct union_fs *t, struct inode *i, const void *p, size_t len, off_t off)
{
	struct copyup_change change = { .data = p, .len = len, .off = off };
	_cleanup_(closep) int own = -1;
	int fd, r = copyup_inode(t, i, &change);
	uint64_t room;

	if (r < 0 || !len || change.is_done)
		return r;
	if (i->is_damaged)
		return -EIO;
	fd = upper_pin_writable(t, i, &own);
	if (fd < 0)
		return fd;
	r = quota_claim_range(t->quota, fd, (uint64_t)off, len, &room);
	if (r == 0) {
		r = write_claimed(t, i, fd, p, len, off);
		quota_settle(t->quota, fd, room, 0);
	}
	fd_cache_unpin(&i->src.fd);
	return r;
}

/* The block that a cut goes through will be shorter, and what is left of it may be zeros. */
static int expect_cut_block(struct inode *i, int fd, uint64_t size)
{
	char zeros[BLK_BYTES] = { 0 };
	const size_t len = BLK_BYTES - (size & (BLK_BYTES - 1));

	return len < BLK_BYTES ? zero_blocks_expect(i, fd, zeros, len, size) : 0;
}

static int truncate_partial(struct union_fs *t, struct inode *i, int fd, uint64_t size)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	r = size > (uint64_t)st.st_size ? settle_growth(t, i, fd, (uint64_t)st.st_size) : 0;
	if (r < 0)
		return r;
	r = mapfile_reserve(i->src.map, 2);
	if (r == 0 && size < (uint64_t)st.st_size)
		r = expect_cut_block(i, fd, size);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	/* The file first: the record alone would hide bytes of a file that still has its length. */
	r = size < (uint64_t)st.st_size ? settle_clip(i, size) : 0;
	union_fs_note_own(t);
	return r;
}

/* Cut to 0, a file whose mark fits nothing needs neither mark nor lower file: it becomes an
 * ordinary one. The cut is on the disk first, as without the mark holes are zeros. The map's entry
 * stays, and does no harm: the mark may be a copy, and the entry another file's. */
static int cut_damaged(struct union_fs *t, struct inode *i, int fd)
{
	MODE_RELAX_SCOPE(fd, "");
	int r;

	if (ftruncate(fd, 0) < 0 || (!t->is_volatile && fdatasync(fd) < 0))
		return -errno;
	r = xattr_trust_unmark(fd);
	if (r == 0)
		i->is_damaged = false;
	return r;
}

int cow_truncate(struct union_fs *t, struct inode *i, off_t size)
{
	struct copyup_change change = { .is_emptied = size == 0 };
	_cleanup_(closep) int own = -1;
	int fd, r = copyup_inode(t, i, &change);

	if (r < 0 || change.is_done)
		return r;
	if (i->is_damaged && size > 0)
		return -EIO;
	fd = upper_pin_writable(t, i, &own);
	if (fd < 0)
		return fd;
	pthread_rwlock_wrlock(&i->lock);
	if (i->is_damaged)
		r = cut_damaged(t, i, fd);
	else if (i->src.id)
		r = truncate_partial(t, i, fd, (uint64_t)size);
	else
		r = ftruncate(fd, size) < 0 ? -errno : 0;
	pthread_rwlock_unlock(&i->lock);
	quota_note(t->quota, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}

/* Ownership that only the extents tell so far (doc/DESIGN.md) would go with them, also where fsync
 * has relied on them: have the map on disk first. */
static int commit_before_zeroing(struct union_fs *t, struct inode *i, int fd)
{
	if (t->is_volatile || !t->can.has_true_extents || mapfile_is_durable(t->map, i->src.id))
		return 0;
	if (fdatasync(fd) < 0)
		return keep_sync_error(i, -errno);
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
 * can tell from blocks that are seen from below. */
static int zero_blocks(struct union_fs *t, struct inode *i, int fd, int mode, uint64_t off,
		       uint64_t len, uint64_t size)
{
	const bool is_punch = mode & FALLOC_FL_PUNCH_HOLE;
	int r = mapfile_reserve(i->src.map, len >> BLK_SHIFT);

	if (r == 0)
		r = commit_before_zeroing(t, i, fd);
	if (r == 0)
		r = mapfile_expect_zeros(i->src.map, i->src.id, off >> BLK_SHIFT, len >> BLK_SHIFT);
	if (r < 0)
		return r;
	if (fallocate(fd,
		      (is_punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) |
			      FALLOC_FL_KEEP_SIZE,
		      (off_t)off, (off_t)len) < 0) {
		/* Written, they must not make the file longer. */
		r = errno == EOPNOTSUPP ? write_zeros(fd, off, off + len > size ? size - off : len)
					: -errno;
		if (r < 0)
			return r;
	}
	count_taken(i, off >> BLK_SHIFT, (off + len) >> BLK_SHIFT, off, len, size);
	r = mapfile_own_zeros(i->src.map, i->src.id, off >> BLK_SHIFT, len >> BLK_SHIFT);
	union_fs_note_own(t);
	return r == 0 ? mapfile_must_sync(i->src.map, i->src.id) : r;
}

static int zero_partial(struct union_fs *t, struct inode *i, int fd, int mode, uint64_t off,
			uint64_t end, uint64_t size)
{
	static const char zeros[2 * BLK_BYTES]; /* parts of two blocks at most */
	uint64_t first = BLK_END(off), last;
	int r = 0;

	if (end > size)
		end = size;
	if (off >= end)
		return 0;
	/* The last block of the file is whole when the range reaches its end. */
	last = end == size ? BLK_END(end) : BLK_START(end);
	if (first >= last)
		return write_blocks(t, i, fd, zeros, end - off, off, size);
	if (off < first)
		r = write_blocks(t, i, fd, zeros, first - off, off, size);
	if (r == 0)
		r = zero_blocks(t, i, fd, mode, first, last - first, size);
	if (r == 0 && last < end)
		r = write_blocks(t, i, fd, zeros, end - last, last, size);
	return r;
}

/* At most a chunk. 1: there is nothing of the lower file from first on. */
static int take_chunk(struct union_fs *t, struct inode *i, int fd, blk_t first, blk_t end,
		      char *buf)
{
	uint64_t clip, size;
	struct stat st;
	int r;

	WRLOCK_SCOPE(&i->lock);
	if (!i->src.id)
		return 1;
	r = mapfile_clip(i->src.map, i->src.id, &clip);
	if (r < 0 || fstat(fd, &st) < 0)
		return r == -ENOENT ? -EIO : r < 0 ? r : -errno;
	size = (uint64_t)st.st_size;
	clip = BLK_END(MIN(clip, size)) >> BLK_SHIFT;
	end = MIN(end, clip);
	if (first >= end)
		return 1;
	r = mapfile_reserve(i->src.map, end - first);
	if (r == 0)
		r = fill_blocks(i, fd, first, end, size, buf);
	if (r < 0)
		return r;
	count_taken(i, first, end, 0, 0, size);
	i->is_synced = false;
	r = mapfile_own(i->src.map, i->src.id, first, end - first);
	union_fs_note_own(t);
	return r;
}

/* Plain allocation promises that no later write there is short of room: what is seen from below is
 * copied. Unwritten extents over it would be no second copy of the map any more: where the file
 * system has no room to split one, it writes zeros into what is left of it (ext4), and after a
 * power cut they would pass for own. */
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

/* Plain allocation, after take_range. What is seen from below all the same is left alone: an extent
 * over it would make it own. */
static int allocate_partial(struct union_fs *t, struct inode *i, int fd, int mode, uint64_t off,
			    uint64_t end, uint64_t size)
{
	blk_t blk = off >> BLK_SHIFT, last = BLK_END(end) >> BLK_SHIFT;
	int r = end > size && !(mode & FALLOC_FL_KEEP_SIZE) ? settle_growth(t, i, fd, size) : 0;

	while (r == 0 && blk < last) {
		uint64_t from, to;
		bool is_own;
		blk_t n;

		r = mapfile_run(i->src.map, i->src.id, blk, last - blk, &is_own, &n);
		if (r < 0)
			return r == -ENOENT ? -EIO : r;
		from = blk << BLK_SHIFT > off ? blk << BLK_SHIFT : off;
		to = (blk + n) << BLK_SHIFT < end ? (blk + n) << BLK_SHIFT : end;
		if (is_own && fallocate(fd, mode, (off_t)from, (off_t)(to - from)) < 0)
			r = -errno;
		blk += n;
	}
	if (r == 0 && end > size && !(mode & FALLOC_FL_KEEP_SIZE)) {
		struct stat st;

		if (fstat(fd, &st) < 0 ||
		    ((uint64_t)st.st_size < end && ftruncate(fd, (off_t)end) < 0))
			r = -errno;
	}
	return r;
}

/* fallocate(2) sets the times of a file, also where it finds nothing to do. That a file's times
 * cannot be set is no reason to refuse what has been done. */
static void touch(int fd)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };

	utimensat(fd, "", times, AT_EMPTY_PATH);
}

static int fallocate_partial(struct union_fs *t, struct inode *i, int fd, int mode, uint64_t off,
			     uint64_t len)
{
	const int zeroing = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
	struct stat st;
	uint64_t size;
	int r = 0;

	if (mode & ~(zeroing | FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (fstat(fd, &st) < 0)
		return -errno;
	size = (uint64_t)st.st_size;
	if (!(mode & zeroing)) {
		r = allocate_partial(t, i, fd, mode, off, off + len, size);
	} else {
		r = settle_growth(t, i, fd, size);
		if (r == 0)
			r = zero_partial(t, i, fd, mode, off, off + len, size);
		if (r == 0 && (mode & FALLOC_FL_ZERO_RANGE) && !(mode & FALLOC_FL_KEEP_SIZE) &&
		    off + len > size)
			r = allocate_partial(t, i, fd, 0, size, off + len, size);
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
		pthread_rwlock_wrlock(&i->lock);
		if (i->src.id)
			r = fallocate_partial(t, i, fd, mode, (uint64_t)off, (uint64_t)len);
		else
			r = fallocate(fd, mode, off, len) < 0 ? -errno : 0;
		pthread_rwlock_unlock(&i->lock);
	}
	if (mode & FALLOC_FL_KEEP_SIZE && !(mode & FALLOC_FL_PUNCH_HOLE))
		quota_note_ahead(t->quota, fd);
	quota_settle(t->quota, fd, room, 0);
	fd_cache_unpin(&i->src.fd);
	return r;
}

static int sync_inode(struct union_fs *t, struct inode *i, bool data_only)
{
	int fd, r = -EAGAIN;

	if (!i->has_upper || t->is_volatile)
		return 0;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	for (int attempt = 0; attempt < FSYNC_TRIES && r == -EAGAIN; attempt++)
		r = sync_and_commit(t, i, fd, data_only);
	if (r == -EAGAIN) {
		/* A stream of new blocks: hold it up for one round. */
		RDLOCK_SCOPE(&i->lock);
		r = sync_and_commit(t, i, fd, data_only);
	}
	i->is_synced = r == 0;
	/* Now it has its place, and what it takes to find it. */
	quota_note(t->quota, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int cow_fsync(struct union_fs *t, struct inode *i, bool data_only)
{
	int r = sync_inode(t, i, data_only), error = atomic_exchange(&i->sync_error, 0);

	return r ?: error;
}

/* The kernel tells of bytes that it could not write back once for each open file, and all writers
 * share ours: then the next fsync of a program would find nothing wrong. Until one was told, this
 * commits nothing of the file. */
int cow_sync_unasked(struct union_fs *t, struct inode *i)
{
	return i->sync_error ?: sync_inode(t, i, true);
}
