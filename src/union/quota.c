// SPDX-License-Identifier: Apache-2.0
/* The sum is that of st_blocks of each object as last seen, plus the map file's. An object is read
 * after each operation that changes it. Later changes by the file system itself are at most some
 * blocks per file: ext4, XFS and btrfs all count delayed allocations.
 *
 * XFS, though, preallocates for a growing file, up to twice its size, and takes that back at its
 * own time. Blocks past the end of a file are not counted there, unless a program asked for them
 * (is_ahead), or they were there at the count. */
#include "veneer/union/quota.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/htab.h"
#include "veneer/base/lock.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/whiteout.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/file.h"
#include "veneer/union/inode_struct.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#define BLOCK_BYTES    512 /* of st_blocks */
#define ROUND_BYTES    4096
#define MAP_LOOK_EVERY 64 /* notes */

struct charge {
	struct hlink link; /* its hash is the inode number */
	uint64_t bytes;
	bool is_ahead;
};

struct quota {
	int rootfd;
	dev_t dev;
	uint64_t max_bytes, max_inodes;
	bool is_speculative; /* the file system preallocates past the end of a file */

	mutex_t lock;
	GUARDED_BY(lock) struct htab charges;
	GUARDED_BY(lock) uint64_t bytes; /* sum of all charges */
	GUARDED_BY(lock) uint64_t map_bytes;
	GUARDED_BY(lock) uint64_t claimed_bytes, claimed_inodes;
	GUARDED_BY(lock) unsigned notes; /* since the map was last read */
};

int quota_new(int rootfd, uint64_t max_bytes, uint64_t max_inodes, struct quota **ret)
{
	struct quota *q = calloc(1, sizeof(*q));
	struct statfs fs;
	struct stat st;

	if (!q)
		return -ENOMEM;
	if (fstat(rootfd, &st) < 0 || fstatfs(rootfd, &fs) < 0) {
		int r = -errno;

		free(q);
		return r;
	}
	q->rootfd = rootfd;
	q->dev = st.st_dev;
	q->max_bytes = max_bytes;
	q->max_inodes = max_inodes;
	q->is_speculative = fs.f_type == XFS_SUPER_MAGIC;
	mutex_init(&q->lock);
	*ret = q;
	return 0;
}

static void free_charge(struct hlink *l, void *arg)
{
	(void)arg;
	free(container_of(l, struct charge, link));
}

void quota_free(struct quota *q)
{
	if (!q)
		return;
	htab_drain(&q->charges, free_charge, NULL);
	htab_release(&q->charges);
	mutex_destroy(&q->lock);
	free(q);
}

/* ---- the sum ---- */

static struct charge *find_locked(struct quota *q, ino_t ino)
{
	struct hlink *l = htab_first(&q->charges, ino);

	return l ? container_of(l, struct charge, link) : NULL;
}

static void gone_locked(struct quota *q, ino_t ino) REQUIRES(q->lock)
{
	struct charge *c = find_locked(q, ino);

	if (!c)
		return;
	q->bytes -= c->bytes;
	htab_remove(&q->charges, &c->link);
	free(c);
}

static uint64_t round_up(uint64_t n)
{
	return (n + ROUND_BYTES - 1) & ~(uint64_t)(ROUND_BYTES - 1);
}

static uint64_t bytes_of(const struct quota *q, const struct stat *st, bool is_ahead)
{
	uint64_t bytes = (uint64_t)st->st_blocks * BLOCK_BYTES;
	uint64_t end = round_up((uint64_t)st->st_size);

	return q->is_speculative && S_ISREG(st->st_mode) && !is_ahead && bytes > end ? end : bytes;
}

static void note_locked(struct quota *q, const struct stat *st, bool is_ahead) REQUIRES(q->lock)
{
	struct charge *c = find_locked(q, st->st_ino);

	if (!c) {
		c = calloc(1, sizeof(*c));
		/* Without memory the file is not counted until it is next noted. */
		if (!c || htab_insert(&q->charges, &c->link, st->st_ino) < 0) {
			free(c);
			return;
		}
	}
	c->is_ahead = c->is_ahead || is_ahead;
	q->bytes -= c->bytes;
	c->bytes = bytes_of(q, st, c->is_ahead);
	q->bytes += c->bytes;
}

static void look_at_map_locked(struct quota *q) REQUIRES(q->lock)
{
	struct stat st;

	q->notes = 0;
	q->map_bytes = fstatat(q->rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0
			       ? (uint64_t)st.st_blocks * BLOCK_BYTES
			       : 0;
}

static void note(struct quota *q, int fd, bool is_ahead)
{
	struct stat st;

	LOCK_SCOPE(&q->lock);
	/* Stat under the lock, so that the latest state counts. */
	if (fstat(fd, &st) < 0 || st.st_dev != q->dev)
		return;
	if (S_ISDIR(st.st_mode) && st.st_nlink == 0)
		gone_locked(q, st.st_ino);
	else
		note_locked(q, &st, is_ahead);
	if (++q->notes >= MAP_LOOK_EVERY)
		look_at_map_locked(q);
}

void quota_note(struct quota *q, int fd)
{
	if (q)
		note(q, fd, false);
}

void quota_note_ahead(struct quota *q, int fd)
{
	if (q)
		note(q, fd, true);
}

void quota_note_at(struct quota *q, int dirfd, const char *name)
{
	struct stat st;

	if (!q)
		return;
	LOCK_SCOPE(&q->lock);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == q->dev)
		note_locked(q, &st, false);
}

void quota_gone(struct quota *q, ino_t ino)
{
	if (!q)
		return;
	LOCK_SCOPE(&q->lock);
	gone_locked(q, ino);
}

void quota_drop(struct union_fs *t, struct inode *i)
{
	struct stat st;

	if (!t->quota || i->links == INODE_NAMED || i->type == DT_DIR)
		return;
	/* For an inode that was not used since a server died, only its held descriptor is known. */
	if (!i->is_held || !i->src.fd.fd_plus_one || fstat(i->src.fd.fd_plus_one - 1, &st) < 0)
		st = (struct stat){ .st_ino = i->upper_ino, .st_nlink = i->links != INODE_GONE };
	if (st.st_nlink == 0)
		quota_gone(t->quota, st.st_ino);
}

/* ---- claims ---- */

static bool fits(uint64_t max, uint64_t taken, uint64_t claimed, uint64_t more)
{
	return !max || !more ||
	       (taken < max && claimed < max - taken && more <= max - taken - claimed);
}

int quota_claim(struct quota *q, uint64_t bytes, uint64_t inodes)
{
	if (!q || (!bytes && !inodes))
		return 0;
	LOCK_SCOPE(&q->lock);
	if (!fits(q->max_bytes, q->bytes + q->map_bytes, q->claimed_bytes, bytes) ||
	    !fits(q->max_inodes, q->charges.count, q->claimed_inodes, inodes))
		return -ENOSPC;
	q->claimed_bytes += bytes;
	q->claimed_inodes += inodes;
	return 0;
}

/* The bytes of [first, end) that are charged already. */
static int allocated(struct quota *q, int fd, uint64_t first, uint64_t end, uint64_t *ret)
{
	const struct charge *c;
	bool is_ahead;
	struct stat st;

	*ret = 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	mutex_lock(&q->lock);
	c = find_locked(q, st.st_ino);
	is_ahead = c && c->is_ahead;
	mutex_unlock(&q->lock);
	if (q->is_speculative && !is_ahead && end > round_up((uint64_t)st.st_size))
		end = round_up((uint64_t)st.st_size);
	return first < end ? file_allocated(fd, first, end - first, ret) : 0;
}

int quota_claim_range(struct quota *q, int fd, uint64_t off, uint64_t len, uint64_t *ret)
{
	const uint64_t first = off & ~(uint64_t)(ROUND_BYTES - 1);
	const uint64_t end = round_up(off + len);
	uint64_t there;
	int r;

	*ret = 0;
	if (!q || !q->max_bytes || !len)
		return 0;
	r = quota_claim(q, end - first, 0);
	if (r == 0) {
		*ret = end - first;
		return 0;
	}
	/* The slow way, when hardly any room is left: allocated blocks can be written all the
	 * same. */
	r = allocated(q, fd, first, end, &there);
	if (r < 0)
		return r == -EOPNOTSUPP ? -ENOSPC : r;
	r = quota_claim(q, end - first - there, 0);
	if (r == 0)
		*ret = end - first - there;
	return r;
}

void quota_settle(struct quota *q, int fd, uint64_t bytes, uint64_t inodes)
{
	if (!q)
		return;
	if (fd >= 0)
		note(q, fd, false);
	LOCK_SCOPE(&q->lock);
	q->claimed_bytes -= bytes;
	q->claimed_inodes -= inodes;
}

bool quota_usage(struct quota *q, struct quota_usage *ret)
{
	if (!q)
		return false;
	LOCK_SCOPE(&q->lock);
	look_at_map_locked(q);
	*ret = (struct quota_usage){ .max_bytes = q->max_bytes,
				     .max_inodes = q->max_inodes,
				     .bytes = q->bytes + q->map_bytes,
				     .inodes = q->charges.count };
	return true;
}

/* ---- the count ---- */

static void note_counted(struct quota *q, const struct stat *st)
{
	struct charge *c;

	LOCK_SCOPE(&q->lock);
	note_locked(q, st, false);
	c = find_locked(q, st->st_ino);
	if (c && c->bytes < (uint64_t)st->st_blocks * BLOCK_BYTES)
		note_locked(q, st, true);
}

static int count_entry(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct quota *q = arg;

	(void)dirfd;
	if ((!strncmp(name, WHITEOUT_PREFIX, WHITEOUT_PREFIX_LEN) &&
	     strcmp(name, BRANCH_DIR_NAME) != 0) ||
	    st->st_dev != q->dev || whiteout_is_device(st->st_mode, st->st_rdev))
		return 0;
	note_counted(q, st);
	return S_ISDIR(st->st_mode);
}

static int miss(void *arg, const char *name, int error)
{
	(void)arg;
	(void)name;
	return error == -ENOENT ? 0 : error;
}

int quota_count(struct quota *q)
{
	const struct dir_walk_hooks hooks = { .entry = count_entry, .miss = miss, .is_ours = true };
	struct stat st;
	int r = fstat(q->rootfd, &st) < 0 ? -errno : 0;

	if (r == 0) {
		note_counted(q, &st);
		r = dir_walk(q->rootfd, &hooks, q);
	}
	LOCK_SCOPE(&q->lock);
	look_at_map_locked(q);
	return r;
}
