// SPDX-License-Identifier: Apache-2.0
/* A block becomes own when it holds what is seen at it, so that each state in between shows the same. Blocks are
 * written whole: after a power cut an extent says that its blocks are own. */
#include "fill.h"

#include "keep.h"

#include "veneer/cleanup.h"
#include "veneer/file.h"
#include "veneer/format.h"
#include "veneer/read.h"
#include "veneer/upper.h"
#include "veneer/xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define STEP_BYTES ((uint64_t)1 << 20)

struct fill {
	struct tree *t;
	struct inode *i;
	int fd;
	uint64_t seen;		/* bytes of the lower file that can be seen */
	uint64_t size;
	char *buf;		/* STEP_BYTES */
	void (*copied)(void *arg, uint64_t n);
	void *arg;
};

/* ---- data ---- */

static int write_zeros(const struct fill *f, uint64_t off, uint64_t end)
{
	memset(f->buf, 0, STEP_BYTES);
	while (off < end) {
		uint64_t n = end - off < STEP_BYTES ? end - off : STEP_BYTES;
		int r = file_pwrite(f->fd, f->buf, n, (off_t)off);

		if (r < 0)
			return r;
		off += n;
	}
	return 0;
}

/* A block that is not own may hold what a server wrote before it was killed. */
static int make_hole(const struct fill *f, uint64_t off, uint64_t end)
{
	off_t data = lseek(f->fd, (off_t)off, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	if ((uint64_t)data >= end)
		return 0;
	if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)(end - off)) == 0)
		return 0;
	return errno == EOPNOTSUPP ? write_zeros(f, off, end) : -errno;
}

static int copy_data(const struct fill *f, uint64_t off, uint64_t end)
{
	size_t n = (size_t)(end - off), nseen = f->seen > off ? (size_t)(f->seen - off) : 0;
	int r;

	if (nseen > n)
		nseen = n;
	r = read_source(f->i->src.below, f->buf, nseen, off);
	if (r < 0)
		return r;
	memset(f->buf + nseen, 0, n - nseen);
	r = file_pwrite(f->fd, f->buf, n, (off_t)off);
	if (r == 0 && f->copied)
		f->copied(f->arg, n);
	return r;
}

static int own(const struct fill *f, uint64_t off, uint64_t end)
{
	blk_t first = off >> BLK_SHIFT;
	int r = mapfile_own(f->t->map, f->i->src.id, first, ((end + BLK_BYTES - 1) >> BLK_SHIFT) - first);

	if (r == 0 && mapfile_wants_checkpoint(f->t->map))
		r = mapfile_checkpoint(f->t->map, false);
	return r;
}

static uint64_t whole_block(uint64_t end, uint64_t limit)
{
	end = (end + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
	return end < limit ? end : limit;
}

/* One step into [off, end), where no block is own: a hole of the lower's, or at most STEP_BYTES of data. */
static int fill_step(const struct fill *f, uint64_t off, uint64_t end, uint64_t *ret_end)
{
	uint64_t seen = f->seen < end ? f->seen : end, stop = end;
	off_t data = off < seen ? read_source_seek(f->i->src.below, (off_t)off, (off_t)seen, SEEK_DATA) : -ENXIO;
	int r = mapfile_reserve(f->t->map, 1);

	if (r < 0)
		return r;
	if (data < 0 && data != -ENXIO)
		return (int)data;
	if (data >= 0 && ((uint64_t)data & ~(uint64_t)(BLK_BYTES - 1)) == off) {
		off_t hole = read_source_seek(f->i->src.below, data, (off_t)seen, SEEK_HOLE);

		if (hole < 0)
			return (int)hole;
		stop = whole_block((uint64_t)hole, end);
		if (stop > off + STEP_BYTES)
			stop = off + STEP_BYTES;
		r = copy_data(f, off, stop);
	} else {
		if (data >= 0)
			stop = (uint64_t)data & ~(uint64_t)(BLK_BYTES - 1);
		r = make_hole(f, off, stop);
	}
	*ret_end = stop;
	return r ?: own(f, off, stop);
}

static int fill_blocks(const struct fill *f)
{
	blk_t end = (f->seen + BLK_BYTES - 1) >> BLK_SHIFT, n;
	int r = 0;

	for (blk_t at = 0; r == 0 && at < end; at += n) {
		uint64_t off = at << BLK_SHIFT, stop;
		bool is_own;

		r = mapfile_run(f->t->map, f->i->src.id, at, end - at, &is_own, &n);
		if (r < 0 || is_own)
			continue;
		stop = (at + n) << BLK_SHIFT;
		if (stop > f->size)
			stop = f->size;
		while (r == 0 && off < stop)
			r = fill_step(f, off, stop, &off);
	}
	return r;
}

/* Some block below the end of the file is not own. */
static int is_wanting(const struct fill *f)
{
	blk_t end = (f->seen + BLK_BYTES - 1) >> BLK_SHIFT, n;
	bool is_own;
	int r = end ? mapfile_run(f->t->map, f->i->src.id, 0, end, &is_own, &n) : 0;

	return r < 0 || !end ? r : !is_own || n < end;
}

static int fill_and_keep(struct fill *f)
{
	struct keep k;
	int r = is_wanting(f), is_old, e = 0;

	if (r < 0)
		return r;
	is_old = keep_load(f->fd, &k);
	if (is_old < 0)
		return is_old;
	if (r && !is_old) {
		e = keep_take(f->fd, &k);
		if (e < 0)
			return e;
	}
	if (r || is_old) {
		r = r ? fill_blocks(f) : 0;
		e = keep_put_back(f->fd, &k);
	}
	return r ?: e;
}

int fill_file(struct tree *t, struct inode *i, void (*copied)(void *arg, uint64_t n), void *arg)
{
	struct fill f = { .t = t, .i = i, .copied = copied, .arg = arg };
	uint64_t clip;
	struct stat st;
	int own_fd, r = mapfile_clip(t->map, i->src.id, &clip);

	if (r < 0)
		return r;
	f.buf = malloc(STEP_BYTES);
	if (!f.buf)
		return -ENOMEM;
	f.fd = upper_pin_writable(t, i, &own_fd);
	if (f.fd < 0) {
		free(f.buf);
		return f.fd;
	}
	r = fstat(f.fd, &st) < 0 ? -errno : 0;
	if (r == 0) {
		f.size = (uint64_t)st.st_size;
		f.seen = clip < f.size ? clip : f.size;
		r = fill_and_keep(&f);
	}
	closep(&own_fd);
	fdcache_unpin(&i->src.fd);
	free(f.buf);
	return r;
}

int fill_finish(struct tree *t, struct inode *i)
{
	/* First the room: a mark that is gone while its entry stays is harmless, but the entry would stay for long. */
	int r = mapfile_reserve(t->map, 1), fd;

	if (r < 0)
		return r;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	r = xattr_remove(fd, "", FORMAT_PARTIAL_ATTR);
	fdcache_unpin(&i->src.fd);
	if (r < 0 && r != -ENODATA)
		return r;
	r = mapfile_file_gone(t->map, i->src.id);
	i->src.id = 0;
	i->src.below = NULL;
	return r == -ENOENT ? 0 : r;
}
