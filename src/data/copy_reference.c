// SPDX-License-Identifier: Apache-2.0
/* A lower layer never changes, so the copy needs no reference count. A program may copy the file
 * piece by piece: the map has the whole size of the source as the clip from the start, and the file
 * grows below it. Any other growth settles the clip first (cow_blocks_settle_growth), after which
 * no piece is added.
 *
 * A doubtful copy is refused, and copied byte by byte. The conditions:
 *
 * - The pieces begin at the start of both files, end at a block or with the source, and none was
 *   written to.
 * - The path of the lower file leads to it in the lower layers, and the file is as the image knows
 *   it: the mark records that state.
 * - The new file has an inode number of its own and one name. A thread that looks the name up
 *   meanwhile is told to look again.
 * - The kernel holds no backing file of the new file, by which it would write past the server. An
 *   open in progress counts itself first and then looks at `shuns_backing`. Here the order is
 *   reversed, so that one of the two sees the other. */
#include "copy_reference.h"

#include "partial_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/data/copy_range.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

struct copying {
	struct union_fs *t;
	struct inode *from, *to;
	int fd;
	struct source *src; /* of from */
	struct stat low, up;
	uint64_t off, end; /* of both files */
};

#define PIECE_MIN ((uint64_t)1 << 20) /* a first piece that is not the whole file */

static bool is_candidate(const struct union_fs *t, const struct inode *from, const struct inode *to)
{
	return t->map && !t->copies_whole && from->type == DT_REG && !from->has_upper &&
	       from->links == INODE_NAMED && from->lower && to->type == DT_REG && to->has_upper &&
	       !to->upper_dev && to->links == INODE_NAMED && !to->lower && !to->is_damaged &&
	       !(to->given & INODE_GIVEN_MAPPING);
}

/* Does the file exist with the size and time that the image knows and the mark will record? */
static bool is_as_known(const struct copying *c)
{
	struct stat st;

	return source_stat(c->src, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_size == c->low.st_size && st.st_mtim.tv_sec == c->low.st_mtim.tv_sec &&
	       st.st_mtim.tv_nsec == c->low.st_mtim.tv_nsec;
}

static bool is_found_by_path(const struct copying *c)
{
	_cleanup_(freep) char *path = image_path(c->from->lower);
	struct image_entry *e;

	return path && image_lookup_path(c->t->image, path, &e) == 0 && e == c->from->lower;
}

/* Refuse a whole file that was copied up: it shows the inode number of the lower file. Refuse a
 * file with preallocated blocks: after a power cut they could pass for own. Up to one block may
 * belong to the file's attributes, so truncation gives back any preallocation behind them. */
static bool is_new_file(const struct copying *c)
{
	const struct stat *st = &c->up;

	return !c->to->src.id && st->st_size == 0 && st->st_nlink == 1 &&
	       c->to->ino == inode_fold_ino(c->t, st->st_dev, st->st_ino) &&
	       (!st->st_blocks ||
		(st->st_blocks * 512 <= (blkcnt_t)BLK_BYTES && ftruncate(c->fd, 0) == 0));
}

/* Is the new file already a copy of the source, with no own block in the piece? */
static bool is_copy(const struct copying *c)
{
	const struct source *s = &c->to->src;
	const blk_t first = c->off >> BLK_SHIFT,
		    len = ((c->end + BLK_BYTES - 1) >> BLK_SHIFT) - first;
	uint64_t clip;
	bool is_own;
	blk_t n;

	return s->id && s->below == c->src && mapfile_clip(s->map, s->id, &clip) == 0 &&
	       clip == (uint64_t)c->low.st_size &&
	       mapfile_run(s->map, s->id, first, len, &is_own, &n) == 0 && !is_own && n == len;
}

/* Add the next piece, or accept one that is there: a request of a killed server is sent again. The
 * truncation sets the times, as any copy does. */
static bool extend(const struct copying *c)
{
	const uint64_t size = (uint64_t)c->up.st_size;

	if (size != c->off && size < c->end)
		return false;
	return ftruncate(c->fd, (off_t)(size < c->end ? c->end : size)) == 0;
}

static bool make(struct copying *c)
{
	struct inode *to = c->to;
	int r = -EBUSY;

	to->shuns_backing = true;
	if (!inode_is_backed(c->t, to))
		r = partial_mark_make_copy(c->t, to, c->fd,
					   &(struct partial_mark_copy){ .of = c->from->lower,
									.src = c->src,
									.st = &c->low,
									.size = c->end });
	if (to->src.id)
		inode_note_partial(c->t, to);
	to->shuns_backing = false;
	return r == 0;
}

/* False: the piece is too short or not block-aligned. */
static bool choose_piece(struct copying *c, uint64_t len)
{
	const uint64_t size = (uint64_t)c->low.st_size;

	c->end = len < size - c->off ? c->off + len : size;
	return c->off % BLK_BYTES == 0 && (c->end == size || c->end % BLK_BYTES == 0) &&
	       (c->off || c->end == size || c->end >= PIECE_MIN);
}

size_t copy_reference_make(struct union_fs *t, const struct copy_reference *r, int fd)
{
	struct copying c = { .t = t, .from = r->from, .to = r->to, .fd = fd, .off = r->off };
	bool is_made;

	if (!r->len || !is_candidate(t, c.from, c.to) ||
	    image_stat(t->image, c.from->lower, &c.low) < 0 ||
	    c.low.st_size < COPY_RANGE_REFERENCE_MIN || r->off >= (uint64_t)c.low.st_size ||
	    !choose_piece(&c, r->len) || image_source(t->image, c.from->lower, &c.src) < 0 ||
	    fstat(fd, &c.up) < 0 || !is_as_known(&c))
		return 0;
	if (is_copy(&c))
		is_made = extend(&c);
	else
		is_made = !c.off && is_new_file(&c) && is_found_by_path(&c) && make(&c);
	if (is_made)
		quota_note(t->quota, fd);
	return is_made ? (size_t)(c.end - c.off) : 0;
}
