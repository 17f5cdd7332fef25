// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/cow.h"

#include "cow_blocks.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/base/promote_policy.h"
#include "veneer/data/copyup.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"
#include "zero_blocks.h"

#include <sys/stat.h>
#include <unistd.h>

static int write_partial(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			 uint64_t off)
{
	struct cow_file f = { .tree = t, .inode = i, .fd = fd };
	int r = cow_blocks_find_size(&f);

	if (r == 0 && off + len > f.size)
		r = cow_blocks_settle_growth(&f);
	return r < 0 ? r : cow_blocks_write(&f, p, len, off);
}

static bool is_want_of_room(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/* All blocks of the range are own and stay own. Without room to record a zero block, data that
 * replaces allocated blocks is written all the same. */
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

/* Under the lock: does the upper file of a partial inode reach to end? Its size is read once, and
 * again when the file may have grown. */
static bool reaches(struct inode *i, int fd, uint64_t end)
{
	struct stat st;

	if (end > i->size_seen && fstat(fd, &st) == 0)
		i->size_seen = (uint64_t)st.st_size;
	return end <= i->size_seen;
}

/* Called with the quota's room claimed. */
static int write_claimed(struct union_fs *t, struct inode *i, int fd, const char *p, size_t len,
			 off_t off)
{
	bool in_place;
	int r = 0;

	rwlock_rdlock(&i->lock);
	in_place = !i->src.id || cow_blocks_all_own(i, (uint64_t)off, len, &r);
	if (in_place) {
		/* Past the end of the file every block is own, but only once the map knows how
		 * short the file is: write_partial settles that. */
		if (i->src.id && !reaches(i, fd, (uint64_t)off + len))
			in_place = false;
		else
			r = write_in_place(i, fd, p, len, off);
	}
	rwlock_unlock(&i->lock);
	if (!in_place && r == 0) {
		rwlock_wrlock(&i->lock);
		/* The file may have become an ordinary one meanwhile. */
		r = i->src.id ? write_partial(t, i, fd, p, len, (uint64_t)off)
			      : write_in_place(i, fd, p, len, off);
		rwlock_unlock(&i->lock);
	}
	return r;
}

/* Ask again after 1, 2, 4, ... writes: the profile of the image may arrive after the first
 * write. */
static bool is_expected(const struct union_fs *t, const struct inode *i, uint32_t n)
{
	return t->completes_expected && (n & (n - 1)) == 0 && i->lower &&
	       atomic_load_explicit(&i->lower->is_expected_written, memory_order_relaxed);
}

static void count_write(struct union_fs *t, struct inode *i)
{
	uint32_t n = atomic_fetch_add_explicit(&i->nwrites, 1, memory_order_relaxed) + 1;

	if (n % PROMOTE_POLICY_WRITES == 0 || is_expected(t, i, n))
		t->on_own(t->on_own_arg);
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
	if (r == 0 && t->tells_written && i->src.id)
		count_write(t, i);
	return r;
}

/* A truncation shortens the last block, whose remaining bytes may then be all zeros. */
static int expect_cut_block(struct inode *i, int fd, uint64_t size)
{
	char zeros[BLK_BYTES] = { 0 };
	const size_t len = BLK_BYTES - (size & (BLK_BYTES - 1));

	return len < BLK_BYTES ? zero_blocks_expect(i, fd, zeros, len, size) : 0;
}

static int truncate_partial(struct union_fs *t, struct inode *i, int fd, uint64_t size)
{
	struct cow_file f = { .tree = t, .inode = i, .fd = fd };
	int r = cow_blocks_find_size(&f);

	if (r == 0 && size > f.size)
		r = cow_blocks_settle_growth(&f);
	if (r == 0)
		r = mapfile_reserve(i->src.map, 2);
	if (r == 0 && size < f.size)
		r = expect_cut_block(i, fd, size);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	/* Truncate the file before the map: the record alone would hide bytes of a file that still
	 * has its old length. */
	r = size < f.size ? cow_blocks_settle_clip(i, size) : 0;
	union_fs_note_own(t);
	return r;
}

/* A damaged file that is cut to 0 needs neither its mark nor its lower file, and becomes an
 * ordinary one. The truncation must be on the disk first: without the mark holes are zeros. The
 * map's entry stays, since the mark may be a copy and the entry may belong to another file. */
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
	rwlock_wrlock(&i->lock);
	i->size_seen = MIN(i->size_seen, (uint64_t)size);
	if (i->is_damaged)
		r = cut_damaged(t, i, fd);
	else if (i->src.id)
		r = truncate_partial(t, i, fd, (uint64_t)size);
	else
		r = ftruncate(fd, size) < 0 ? -errno : 0;
	rwlock_unlock(&i->lock);
	quota_note(t->quota, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}
