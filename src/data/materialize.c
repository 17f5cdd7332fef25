// SPDX-License-Identifier: Apache-2.0
/* A chunk, in order: read the lower blocks once without a lock, so that they are in memory. Lock
 * the file. Save its times, mode and capability, which writing changes (saved_attrs.h). Write and
 * record the missing blocks, then restore the attributes. Blocks are written whole: after a power
 * cut an extent says that its blocks are own. An own hole over a lower hole is equal to none, so
 * its record need not be on the disk.
 *
 * The end of a partial file, in order:
 *
 * 1. Its data and a commit record are on the disk.
 * 2. The origin attribute gives it its inode number from then on.
 * 3. The guard is removed.
 * 4. The mark is removed.
 * 5. The map's entry is removed.
 *
 * Killed before 4, it is a partial file whose blocks are all own; after 4, an ordinary file with an
 * unused entry. A crash that undoes 4 brings the entry back too (doc/SPEC.md, 3.6). A guard without
 * a mark would be damage: hence 3 before 4. */
#include "veneer/data/materialize.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/data/run.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/saved_attrs.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"
#include "zero_blocks.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* A file that is being filled. */
struct filling {
	struct materialize *w;
	struct inode *i;
	int fd;
	uint64_t seen; /* bytes of the lower file that can be seen */
	uint64_t size;
};

int materialize_init(struct materialize *w, struct union_fs *t, bool is_alone)
{
	*w = (struct materialize){ .tree = t, .is_alone = is_alone, .buf = malloc(CHUNK_BYTES) };
	return w->buf ? 0 : -ENOMEM;
}

void materialize_release(struct materialize *w)
{
	free(w->buf);
	w->buf = NULL;
}

static blk_t blks_of(uint64_t bytes)
{
	return (bytes + BLK_BYTES - 1) >> BLK_SHIFT;
}

/* ---- data ---- */

static int write_zeros(const struct filling *f, uint64_t off, uint64_t end)
{
	memset(f->w->buf, 0, CHUNK_BYTES);
	while (off < end) {
		uint64_t n = end - off < CHUNK_BYTES ? end - off : CHUNK_BYTES;
		int r = file_pwrite(f->fd, f->w->buf, n, (off_t)off);

		if (r < 0)
			return r;
		off += n;
	}
	return 0;
}

/* A block that is not own may hold data that a killed server wrote. */
static int make_hole(const struct filling *f, uint64_t off, uint64_t end)
{
	off_t data = lseek(f->fd, (off_t)off, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	if ((uint64_t)data >= end)
		return 0;
	if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
		      (off_t)(end - off)) == 0)
		return 0;
	return errno == EOPNOTSUPP ? write_zeros(f, off, end) : -errno;
}

/* True: the data was cloned. */
static bool clone_data(const struct filling *f, uint64_t off, uint64_t end)
{
	struct run run;
	int fd, r;

	if (f->w->cannot_clone || end > f->seen ||
	    run_find(f->i->src.below, off, end - off, &run) < 0 || !run.src || run.len < end - off)
		return false;
	fd = source_pin(run.src);
	if (fd < 0)
		return false;
	r = file_clone_range(fd, f->fd, (off_t)off, (size_t)run.len);
	fd_cache_unpin(&run.src->fd);
	if (r == -EOPNOTSUPP)
		f->w->cannot_clone = true;
	return r == 0;
}

static int copy_data(const struct filling *f, uint64_t off, uint64_t end)
{
	size_t n = (size_t)(end - off), nseen = f->seen > off ? (size_t)(f->seen - off) : 0;
	char *buf = f->w->buf;
	int r;

	if (nseen > n)
		nseen = n;
	r = read_source(f->i->src.below, buf, nseen, off);
	if (r < 0)
		return r;
	memset(buf + nseen, 0, n - nseen);
	return file_pwrite(f->fd, buf, n, (off_t)off);
}

static int bring_data(const struct filling *f, uint64_t off, uint64_t end)
{
	struct materialize *w = f->w;
	const bool is_cloned = clone_data(f, off, end);
	int r = is_cloned ? 0 : copy_data(f, off, end);

	if (r < 0)
		return r;
	w->bytes += end - off;
	w->cloned += is_cloned ? end - off : 0;
	if (w->copied)
		w->copied(w->arg, end - off);
	return 0;
}

static uint64_t whole_block(uint64_t end, uint64_t limit)
{
	end = (end + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
	return MIN(end, limit);
}

/* Make sure that a hole is one of the lower file, and not the missing end of a lower file that was
 * truncated under the mount. */
static int check_hole(const struct filling *f, uint64_t off, uint64_t end)
{
	int r = 0;

	end = MIN(end, f->seen);
	while (r == 0 && off < end) {
		struct run run;
		struct stat st;
		int fd;

		r = run_find(f->i->src.below, off, end - off, &run);
		if (r < 0)
			return r == -EUCLEAN ? -EIO : r;
		off += run.len;
		if (!run.src)
			continue;
		fd = source_pin(run.src);
		if (fd < 0)
			return fd;
		r = fstat(fd, &st) < 0			       ? -errno
		    : (uint64_t)st.st_size < run.off + run.len ? -EIO
							       : 0;
		fd_cache_unpin(&run.src->fd);
	}
	return r;
}

/* Fill one piece of [off, end), where no block is own: a lower hole, or data. */
static int fill_step(const struct filling *f, uint64_t off, uint64_t end, uint64_t *ret_end)
{
	struct source *below = f->i->src.below;
	uint64_t seen = MIN(f->seen, end), stop = end;
	off_t data = off < seen ? read_source_seek(below, (off_t)off, (off_t)seen, SEEK_DATA)
				: -ENXIO;
	int r = mapfile_reserve(f->w->tree->map, 1);

	if (r < 0)
		return r;
	if (data < 0 && data != -ENXIO)
		return (int)data;
	if (data >= 0 && ((uint64_t)data & ~(uint64_t)(BLK_BYTES - 1)) == off) {
		off_t hole = read_source_seek(below, data, (off_t)seen, SEEK_HOLE);

		if (hole < 0)
			return (int)hole;
		stop = whole_block((uint64_t)hole, end);
		r = bring_data(f, off, stop) ?: zero_blocks_note_range(f->i, f->fd, off, stop);
	} else {
		if (data >= 0)
			stop = (uint64_t)data & ~(uint64_t)(BLK_BYTES - 1);
		r = check_hole(f, off, stop);
		r = r ?: make_hole(f, off, stop);
		r = r
			    ?: mapfile_own_zeros(f->w->tree->map, f->i->src.id, off >> BLK_SHIFT,
						 blks_of(stop) - (off >> BLK_SHIFT));
	}
	*ret_end = stop;
	return r
		       ?: mapfile_own(f->w->tree->map, f->i->src.id, off >> BLK_SHIFT,
				      blks_of(stop) - (off >> BLK_SHIFT));
}

static int fill_blocks(const struct filling *f, blk_t first, blk_t end)
{
	blk_t n;
	int r = 0;

	for (blk_t at = first; r == 0 && at < end; at += n) {
		uint64_t off = at << BLK_SHIFT, stop;
		bool is_own;

		r = mapfile_run(f->w->tree->map, f->i->src.id, at, end - at, &is_own, &n);
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

static int fill_claimed(const struct filling *f, blk_t first, blk_t end)
{
	struct quota *q = f->w->tree->quota;
	uint64_t room;
	int r = quota_claim_range(q, f->fd, first << BLK_SHIFT, (end - first) << BLK_SHIFT, &room);

	if (r < 0)
		return r;
	r = fill_blocks(f, first, end);
	quota_settle(q, f->fd, room, 0);
	return r;
}

/* Is a block of the range not own? */
static int is_wanting(const struct filling *f, blk_t first, blk_t end)
{
	bool is_own;
	blk_t n;
	int r = first < end ? mapfile_run(f->w->tree->map, f->i->src.id, first, end - first,
					  &is_own, &n)
			    : 0;

	return r < 0 || first >= end ? r : !is_own || n < end - first;
}

static int fill_and_keep(const struct filling *f, blk_t first, blk_t end)
{
	struct saved_attrs k;
	int r = is_wanting(f, first, end), e;

	if (r < 0)
		return r;
	if (r == 0) {
		r = saved_attrs_recover(f->fd);
		return r < 0 ? r : 0;
	}
	r = saved_attrs_take(f->fd, &k);
	if (r < 0)
		return r;
	r = fill_claimed(f, first, end);
	e = saved_attrs_put_back(f->fd, &k);
	return r ?: e;
}

/* Is the file partial, undamaged, and not to be skipped? */
static bool is_fit(const struct materialize *w, const struct inode *i)
{
	return i->src.id && !i->is_damaged && (w->takes_nameless || !inode_is_orphan(i));
}

static int measure(struct filling *f)
{
	struct stat st;
	uint64_t clip;
	int r = mapfile_clip(f->w->tree->map, f->i->src.id, &clip);

	if (r == 0 && fstat(f->fd, &st) < 0)
		r = -errno;
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	f->size = (uint64_t)st.st_size;
	f->seen = MIN(clip, f->size);
	return 0;
}

/* Fills at most a chunk. */
static int fill_chunk(struct filling *f, blk_t first, blk_t end)
{
	int r;

	WRLOCK_SCOPE(&f->i->lock);
	if (!is_fit(f->w, f->i))
		return 0;
	r = measure(f);
	if (r < 0)
		return r;
	if (end > blks_of(f->seen))
		end = blks_of(f->seen);
	return first < end ? fill_and_keep(f, first, end) : 0;
}

/* Read ahead without the lock: reading may take long, and users of the file must not wait for it.
 * An error here is ignored, as fill_chunk meets it again. */
static void warm(const struct filling *f, blk_t first, blk_t end)
{
	file_id_t id = f->i->src.id;
	struct source *below = f->i->src.below;
	uint64_t clip;
	bool is_own;
	blk_t n;

	if (f->w->is_alone || !id || !below || mapfile_clip(f->w->tree->map, id, &clip) < 0)
		return;
	end = end < blks_of(clip) ? end : blks_of(clip);
	for (blk_t at = first; at < end; at += n) {
		uint64_t off = at << BLK_SHIFT, stop;

		if (mapfile_run(f->w->tree->map, id, at, end - at, &is_own, &n) < 0)
			return;
		stop = (at + n) << BLK_SHIFT < clip ? (at + n) << BLK_SHIFT : clip;
		if (!is_own && read_source(below, f->w->buf, stop - off, off) < 0)
			return;
	}
}

static int fill_range(struct filling *f, blk_t first, blk_t end)
{
	int r = 0;

	while (r == 0 && first < end) {
		blk_t stop = (first / CHUNK_BLKS + 1) * CHUNK_BLKS;

		stop = MIN(stop, end);
		warm(f, first, stop);
		r = fill_chunk(f, first, stop);
		if (r == 0 && mapfile_wants_checkpoint(f->w->tree->map))
			r = mapfile_checkpoint(f->w->tree->map, false);
		first = stop;
	}
	return r;
}

int materialize_fill(struct materialize *w, struct inode *i, blk_t first, blk_t end)
{
	struct filling f = { .w = w, .i = i };
	_cleanup_(closep) int own = -1;
	int r;

	if (!is_fit(w, i))
		return 0;
	f.fd = upper_pin_writable(w->tree, i, &own);
	if (f.fd < 0)
		return f.fd;
	r = fill_range(&f, first, end);
	fd_cache_unpin(&i->src.fd);
	return r;
}

int materialize_fill_file(struct materialize *w, struct inode *i)
{
	file_id_t id = i->src.id;
	uint64_t clip;
	int r = id ? mapfile_clip(w->tree->map, id, &clip) : -ENOENT;

	if (r < 0)
		return r == -ENOENT && !i->src.id ? 0 : r;
	return materialize_fill(w, i, 0, blks_of(clip));
}

/* ---- the end of it ---- */

static int note_origin(struct union_fs *t, struct inode *i, int fd)
{
	_cleanup_(freep) char *path = i->lower ? image_path(i->lower) : NULL;
	char there[PATH_MAX];

	if (!path)
		return i->lower ? -ENOMEM : 0;
	origin_xattr_write(&t->style, fd, path);
	/* Without the origin the next mount would show another inode number: rather keep the file
	 * partial. */
	return origin_xattr_read(fd, "", t->upper->is_doubted, there) == 1 && !strcmp(there, path)
		       ? 0
		       : -ENOSPC;
}

/* Under the lock. 1: nothing of the lower file shows. A clip past the end is settled first, as
 * before a growth (cow_blocks_settle_clip): bytes cut off before a server was killed must not
 * reappear. */
static int is_complete(struct filling *f)
{
	struct mapfile *map = f->w->tree->map;
	uint64_t clip;
	int r = measure(f);

	if (r == 0)
		r = mapfile_clip(map, f->i->src.id, &clip);
	if (r == 0 && clip > f->size)
		r = mapfile_truncate(map, f->i->src.id, f->size);
	return r < 0 ? r : mapfile_is_complete(map, f->i->src.id);
}

static int drop_mark(struct filling *f)
{
	MODE_RELAX_SCOPE(f->fd, "");
	struct union_fs *t = f->w->tree;
	struct inode *i = f->i;
	const file_id_t id = i->src.id;
	/* Reserve room first: an entry without a mark is harmless, but would stay for long. */
	int r = mapfile_reserve(t->map, 1);

	if (r == 0 && !f->w->is_alone && !inode_is_orphan(i))
		r = note_origin(t, i, f->fd);
	r = r ?: xattr_trust_unmark(f->fd);
	if (r < 0)
		return r;
	/* Clear the id first: a thread that already read it without the lock finds no entry in the
	 * map and looks again. `below` stays valid: the image owns it. */
	i->src.id = 0;
	r = mapfile_file_gone(t->map, id);
	return r < 0 && r != -ENOENT ? r : 1;
}

/* Sync own blocks and their records. A volatile mount only starts their writeback before it removes
 * the mark: after a power cut each block is old or new. */
static int sync_data(struct materialize *w, struct inode *i, int fd)
{
	return w->is_alone || inode_is_orphan(i) ? 0
	       : w->tree->is_volatile		 ? file_write_out(fd)
						 : cow_fsync_unasked(w->tree, i);
}

static int finish_locked(struct filling *f)
{
	int r;

	WRLOCK_SCOPE(&f->i->lock);
	if (!is_fit(f->w, f->i))
		return !f->i->src.id;
	r = f->w->is_alone ? 1 : is_complete(f);
	return r <= 0 ? r : drop_mark(f);
}

int materialize_finish(struct materialize *w, struct inode *i)
{
	const bool was_synced = i->is_synced;
	struct filling f = { .w = w, .i = i };
	_cleanup_(closep) int own = -1;
	int r;

	if (!is_fit(w, i))
		return !i->src.id;
	f.fd = upper_pin_writable(w->tree, i, &own);
	if (f.fd < 0)
		return f.fd;
	/* All blocks that are own from here on were own before the sync. A complete file stays
	 * complete, except for the end of a file that was just cut, which is no loss. */
	r = mapfile_is_complete(w->tree->map, i->src.id);
	if (r == 0 && !w->is_alone) {
		WRLOCK_SCOPE(&i->lock);
		r = is_fit(w, i) ? is_complete(&f) : 0;
	}
	if (r == 1 || w->is_alone) {
		r = sync_data(w, i, f.fd);
		i->is_synced = was_synced; /* no program asked for it */
		r = r ?: finish_locked(&f);
	}
	fd_cache_unpin(&i->src.fd);
	return r == -ENOENT && !i->src.id ? 1 : r;
}
