// SPDX-License-Identifier: Apache-2.0
/* Only a write whose bytes in a block are all zeros can make the block zeros, so almost every write
 * costs only a look at its first bytes. For such a write of a part the rest of the block is read.
 *
 * An own block is recorded before the write. Otherwise a server that is killed, or a power cut,
 * between the two would leave a zero block that the map does not know. Two concurrent writers of
 * one block may each find the other part non-zero, so the block is tested again after the write. */
#include "zero_blocks.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"
#include "veneer/union/inode_struct.h"

#include <string.h>
#include <sys/stat.h>

typedef int zeros_fn(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n);

struct zero_run {
	struct inode *inode;
	zeros_fn *fn;
	blk_t first, n;
};

static int end_run(struct zero_run *run)
{
	int r = run->n ? run->fn(run->inode->src.map, run->inode->src.id, run->first, run->n) : 0;

	run->n = 0;
	return r == -ENOENT ? -EIO : r;
}

static int add_block(struct zero_run *run, blk_t blk)
{
	int r = run->n && run->first + run->n != blk ? end_run(run) : 0;

	run->first = run->n ? run->first : blk;
	run->n++;
	return r;
}

/* Read and restore the access time. */
static ssize_t read_quietly(int fd, char *buf, size_t len, uint64_t off)
{
	struct stat before, after;
	ssize_t n;

	if (fstat(fd, &before) < 0)
		return -errno;
	n = file_pread(fd, buf, len, (off_t)off);
	if (fstat(fd, &after) == 0 &&
	    memcmp(&before.st_atim, &after.st_atim, sizeof(after.st_atim)))
		futimens(fd,
			 (const struct timespec[2]){ before.st_atim, { .tv_nsec = UTIME_OMIT } });
	return n;
}

/* Are the bytes around [off, end) in its block zeros? 1, 0 or -errno. */
static int is_zero_around(int fd, uint64_t off, uint64_t end)
{
	const size_t first = off & (BLK_BYTES - 1);
	const size_t last = first + (size_t)(end - off);
	char buf[BLK_BYTES];
	ssize_t n = read_quietly(fd, buf, sizeof(buf), off - first);

	if (n < 0)
		return (int)n;
	return buf_is_zero(buf, first < (size_t)n ? first : (size_t)n) &&
	       (last >= (size_t)n || buf_is_zero(buf + last, (size_t)n - last));
}

static int each_zero_block(struct zero_run *run, int fd, const char *p, size_t len, uint64_t off)
{
	const uint64_t end = off + len;
	int r = 0;

	for (uint64_t at = off, next; r >= 0 && at < end; at = next) {
		const blk_t blk = at >> BLK_SHIFT;

		next = (blk + 1) << BLK_SHIFT < end ? (blk + 1) << BLK_SHIFT : end;
		if (!buf_is_zero(p + (at - off), next - at))
			continue;
		r = next - at == BLK_BYTES ? 1 : is_zero_around(fd, at, next);
		if (r == 1)
			r = add_block(run, blk);
	}
	return r < 0 ? r : end_run(run);
}

int zero_blocks_expect(struct inode *i, int fd, const void *p, size_t len, uint64_t off)
{
	struct zero_run run = { .inode = i, .fn = mapfile_expect_zeros };

	return each_zero_block(&run, fd, p, len, off);
}

int zero_blocks_note(struct inode *i, int fd, const void *p, size_t len, uint64_t off)
{
	struct zero_run run = { .inode = i, .fn = mapfile_own_zeros };

	return each_zero_block(&run, fd, p, len, off);
}

int zero_blocks_note_range(struct inode *i, int fd, uint64_t off, uint64_t end)
{
	_cleanup_(freep) char *buf = malloc(CHUNK_BYTES);
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && off < end) {
		const size_t want = end - off < CHUNK_BYTES ? (size_t)(end - off) : CHUNK_BYTES;
		ssize_t n = read_quietly(fd, buf, want, off);

		if (n <= 0)
			return (int)n;
		r = zero_blocks_note(i, fd, buf, (size_t)n, off);
		off += (uint64_t)n;
	}
	return r;
}
