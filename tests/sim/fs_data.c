// SPDX-License-Identifier: Apache-2.0
#include "arena.h"
#include "fs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_BYTES 4000 /* of one inode; ext4 has a block for them */

int64_t fs_read(struct disk *d, uint32_t ino, void *p, size_t len, int64_t off)
{
	const struct disk_inode *i = disk_inode(d, ino);

	if (S_ISDIR(i->now->mode))
		return -EISDIR;
	if (off < 0)
		return -EINVAL;
	if (off >= i->size)
		return 0;
	if ((int64_t)len > i->size - off)
		len = (size_t)(i->size - off);
	memcpy(p, disk_pages(d, ino) + off, len);
	return (int64_t)len;
}

/* Times, and the size where the last block has its place already. */
static void note_write(struct disk *d, uint32_t ino, int64_t end)
{
	struct disk_inode *i = disk_inode(d, ino);
	struct disk_image *m;
	struct disk_tx tx;

	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	m->mtime = m->ctime = disk_now(d);
	tx.is_times_only = true;
	if (end > i->size && disk_state(m, (size_t)(end - 1) / DISK_BLK_BYTES) == DISK_WRITTEN) {
		m->size = end;
		tx.is_times_only = false;
	}
	disk_end(d, &tx);
	if (end > i->size)
		i->size = end;
}

int64_t fs_write(struct disk *d, uint32_t ino, const void *p, size_t len, int64_t off)
{
	struct disk_inode *i = disk_inode(d, ino);
	const int64_t end = off + (int64_t)len;

	if (off < 0)
		return -EINVAL;
	if (end > (int64_t)DISK_FILE_BYTES)
		return -EFBIG;
	if (!len)
		return 0;
	disk_use(d, ino, end);
	memcpy(disk_pages(d, ino) + off, p, len);
	memset(i->dirty + off / DISK_BLK_BYTES, 1,
	       (size_t)((end - 1) / DISK_BLK_BYTES - off / DISK_BLK_BYTES + 1));
	note_write(d, ino, end);
	return (int64_t)len;
}

/* Zeros in the pages. Where the block has a place they go out before tx counts. */
static void zero_part(struct disk *d, struct disk_tx *tx, uint32_t ino, int64_t from, int64_t end)
{
	struct disk_inode *i = disk_inode(d, ino);
	const size_t blk = (size_t)from / DISK_BLK_BYTES;

	if (from >= end)
		return;
	memset(disk_pages(d, ino) + from, 0, (size_t)(end - from));
	if (disk_state(i->now, blk) != DISK_WRITTEN)
		return;
	i->dirty[blk] = 1;
	tx->ordered_ino = ino;
	tx->ordered_blk = (uint32_t)blk;
}

static int64_t round_up(int64_t off)
{
	return (off + DISK_BLK_BYTES - 1) / DISK_BLK_BYTES * DISK_BLK_BYTES;
}

int fs_truncate(struct disk *d, uint32_t ino, int64_t size)
{
	struct disk_inode *i = disk_inode(d, ino);
	const size_t nblk = (size_t)round_up(size) / DISK_BLK_BYTES;
	struct disk_image *m;
	struct disk_tx tx;

	if (!S_ISREG(i->now->mode) || size < 0)
		return -EINVAL;
	if (size > (int64_t)DISK_FILE_BYTES)
		return -EFBIG;
	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	if (size < i->size) {
		zero_part(d, &tx, ino, size, round_up(size));
		for (size_t blk = nblk; blk * DISK_BLK_BYTES < (size_t)i->size; blk++)
			memset(disk_pages(d, ino) + blk * DISK_BLK_BYTES, 0, DISK_BLK_BYTES);
		memset(i->dirty + nblk, 0, DISK_BLKS - nblk);
	}
	disk_cut_extents(m, nblk);
	m->size = size;
	m->mtime = m->ctime = disk_now(d);
	i->size = size;
	disk_end(d, &tx);
	return 0;
}

static void empty_blocks(struct disk *d, struct disk_image *m, uint32_t ino, int64_t first,
			 int64_t last, enum disk_extent_state state)
{
	struct disk_inode *i = disk_inode(d, ino);

	for (size_t blk = (size_t)first / DISK_BLK_BYTES; blk < (size_t)last / DISK_BLK_BYTES;
	     blk++) {
		memset(disk_pages(d, ino) + blk * DISK_BLK_BYTES, 0, DISK_BLK_BYTES);
		i->dirty[blk] = 0;
		if (state != DISK_HOLE || blk < m->nextents)
			disk_extent_set(disk_extent(m, blk), state, NULL);
	}
}

/* A hole, or unwritten extents, and zeros at the edges. */
static void zero_range(struct disk *d, struct disk_tx *tx, uint32_t ino, int mode, int64_t off,
		       int64_t end)
{
	struct disk_image *m = disk_edit(d, tx, ino);
	const int64_t first = round_up(off), last = end / DISK_BLK_BYTES * DISK_BLK_BYTES;

	if (first > last) {
		zero_part(d, tx, ino, off, end);
		return;
	}
	zero_part(d, tx, ino, off, first);
	empty_blocks(d, m, ino, first, last,
		     mode & FALLOC_FL_PUNCH_HOLE ? DISK_HOLE : DISK_UNWRITTEN);
	zero_part(d, tx, ino, last, end);
}

int fs_fallocate(struct disk *d, uint32_t ino, int mode, int64_t off, int64_t len)
{
	struct disk_inode *i = disk_inode(d, ino);
	const int64_t end = off + len;
	struct disk_image *m;
	struct disk_tx tx;

	if (off < 0 || len <= 0)
		return -EINVAL;
	if (end > (int64_t)DISK_FILE_BYTES)
		return -EFBIG;
	if (!S_ISREG(i->now->mode))
		return -ENODEV;
	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
		const int64_t seen = end < i->size ? end : i->size;

		zero_range(d, &tx, ino, mode, off, end);
		/* As ext4 does since Linux 6.18. */
		if (m->size < seen)
			m->size = seen;
	} else {
		for (size_t blk = (size_t)off / DISK_BLK_BYTES;
		     blk < (size_t)round_up(end) / DISK_BLK_BYTES; blk++)
			if (disk_state(m, blk) == DISK_HOLE)
				disk_extent_set(disk_extent(m, blk), DISK_UNWRITTEN, NULL);
	}
	if (!(mode & FALLOC_FL_KEEP_SIZE) && end > i->size)
		m->size = i->size = end;
	m->mtime = m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}

int64_t fs_seek(struct disk *d, uint32_t ino, int64_t off, int whence)
{
	const struct disk_inode *i = disk_inode(d, ino);

	if (off < 0 || off >= i->size)
		return -ENXIO;
	while (off < i->size) {
		const size_t blk = (size_t)off / DISK_BLK_BYTES;
		const bool is_data = i->dirty[blk] || disk_state(i->now, blk) == DISK_WRITTEN;

		if (is_data == (whence == SEEK_DATA))
			return off;
		off = (int64_t)(blk + 1) * DISK_BLK_BYTES;
	}
	return whence == SEEK_DATA ? -ENXIO : i->size;
}

static struct timespec time_of(int64_t ns)
{
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

void fs_stat(struct disk *d, uint32_t ino, struct stat *ret)
{
	const struct disk_inode *i = disk_inode(d, ino);
	const struct disk_image *m = i->now;
	const size_t end = (size_t)round_up(i->size) / DISK_BLK_BYTES;
	size_t nblk = 0;

	for (size_t k = 0; S_ISREG(m->mode) && (k < end || k < m->nextents); k++)
		nblk += i->dirty[k] || disk_state(m, k) != DISK_HOLE;
	*ret = (struct stat){
		.st_dev = FS_DEV,
		.st_ino = ino,
		.st_mode = m->mode,
		.st_nlink = m->nlink,
		.st_uid = m->uid,
		.st_gid = m->gid,
		.st_rdev = m->rdev,
		.st_size = S_ISREG(m->mode)   ? i->size
			   : S_ISDIR(m->mode) ? DISK_BLK_BYTES
					      : m->size,
		.st_blksize = DISK_BLK_BYTES,
		.st_blocks = (blkcnt_t)(nblk * (DISK_BLK_BYTES / 512)),
		.st_atim = time_of(m->atime),
		.st_mtim = time_of(m->mtime),
		.st_ctim = time_of(m->ctime),
	};
}

int fs_set_mode(struct disk *d, uint32_t ino, mode_t mode)
{
	struct disk_image *m;
	struct disk_tx tx;

	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	m->mode = (m->mode & S_IFMT) | (mode & 07777);
	m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}

int fs_set_owner(struct disk *d, uint32_t ino, uid_t uid, gid_t gid)
{
	struct disk_image *m;
	struct disk_tx tx;

	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	m->uid = uid == (uid_t)-1 ? m->uid : uid;
	m->gid = gid == (gid_t)-1 ? m->gid : gid;
	m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}

static int64_t chosen(struct disk *d, const struct timespec *t, int64_t before)
{
	if (t->tv_nsec == UTIME_OMIT)
		return before;
	if (t->tv_nsec == UTIME_NOW)
		return disk_now(d);
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int fs_set_times(struct disk *d, uint32_t ino, const struct timespec times[2])
{
	static const struct timespec now[2] = { { .tv_nsec = UTIME_NOW },
						{ .tv_nsec = UTIME_NOW } };
	struct disk_image *m;
	struct disk_tx tx;

	times = times ?: now;
	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	m->atime = chosen(d, &times[0], m->atime);
	m->mtime = chosen(d, &times[1], m->mtime);
	m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}

static ssize_t find_xattr(const struct disk_image *m, const char *name)
{
	for (size_t k = 0; k < m->nxattrs; k++)
		if (!strcmp(m->xattrs[k].name, name))
			return (ssize_t)k;
	return -1;
}

static int check_xattr(const struct disk_image *m, const char *name)
{
	if (!strncmp(name, "system.", 7))
		return -EOPNOTSUPP;
	if (!strncmp(name, "user.", 5) && !S_ISREG(m->mode) && !S_ISDIR(m->mode))
		return -EPERM;
	return 0;
}

int64_t fs_get_xattr(struct disk *d, uint32_t ino, const char *name, void *p, size_t size)
{
	const struct disk_image *m = disk_inode(d, ino)->now;
	const ssize_t k = find_xattr(m, name);

	if (!strncmp(name, "system.", 7))
		return -EOPNOTSUPP;
	if (k < 0)
		return -ENODATA;
	if (size && size < m->xattrs[k].size)
		return -ERANGE;
	if (size)
		memcpy(p, m->xattrs[k].value, m->xattrs[k].size);
	return (int64_t)m->xattrs[k].size;
}

int64_t fs_list_xattrs(struct disk *d, uint32_t ino, char *p, size_t size)
{
	const struct disk_image *m = disk_inode(d, ino)->now;
	size_t len = 0;

	for (size_t k = 0; k < m->nxattrs; k++) {
		const size_t n = strlen(m->xattrs[k].name) + 1;

		if (size && len + n > size)
			return -ERANGE;
		if (size)
			memcpy(p + len, m->xattrs[k].name, n);
		len += n;
	}
	return (int64_t)len;
}

static size_t xattr_bytes(const struct disk_image *m)
{
	size_t sum = 0;

	for (size_t k = 0; k < m->nxattrs; k++)
		sum += strlen(m->xattrs[k].name) + m->xattrs[k].size + 16;
	return sum;
}

int fs_set_xattr(struct disk *d, uint32_t ino, const struct fs_xattr *x)
{
	const struct disk_image *before = disk_inode(d, ino)->now;
	ssize_t k = find_xattr(before, x->name);
	int r = check_xattr(before, x->name);
	struct disk_image *m;
	struct disk_tx tx;

	if (r < 0)
		return r;
	if ((x->flags & XATTR_CREATE && k >= 0) || (x->flags & XATTR_REPLACE && k < 0))
		return k >= 0 ? -EEXIST : -ENODATA;
	if (xattr_bytes(before) + strlen(x->name) + x->size > XATTR_BYTES)
		return -ENOSPC;
	disk_begin(&tx);
	tx.soft_ino = ino;
	m = disk_edit(d, &tx, ino);
	if (k < 0) {
		m->xattrs = arena_grow(m->xattrs, m->nxattrs * sizeof(*m->xattrs),
				       (m->nxattrs + 1) * sizeof(*m->xattrs));
		k = (ssize_t)m->nxattrs++;
		m->xattrs[k].name = arena_text(x->name);
		m->xattrs[k].value = NULL;
	}
	arena_free(m->xattrs[k].value);
	m->xattrs[k].value = arena_copy(x->value, x->size);
	m->xattrs[k].size = x->size;
	m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}

int fs_remove_xattr(struct disk *d, uint32_t ino, const char *name)
{
	const ssize_t k = find_xattr(disk_inode(d, ino)->now, name);
	struct disk_image *m;
	struct disk_tx tx;

	if (k < 0)
		return !strncmp(name, "system.", 7) ? -EOPNOTSUPP : -ENODATA;
	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	arena_free(m->xattrs[k].name);
	arena_free(m->xattrs[k].value);
	m->nxattrs--;
	memmove(&m->xattrs[k], &m->xattrs[k + 1], (m->nxattrs - (size_t)k) * sizeof(*m->xattrs));
	m->ctime = disk_now(d);
	disk_end(d, &tx);
	return 0;
}
