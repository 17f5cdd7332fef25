// SPDX-License-Identifier: Apache-2.0
/* States of a block of a file: dirty (in the pages alone) -> allocated (an unwritten extent in the
 * journal) -> written (the bytes in the journal's extent) -> overwritten in place (a version on
 * the platter that a flush makes the only one).
 *
 * Invariants:
 * 1. A transaction has whole images: what a cut leaves of an inode is the newest image among the
 *    transactions that count, or `durable`.
 * 2. Transactions count in order: all up to some number, and no other.
 * 3. Bytes are on the platter before a transaction counts that calls them written. */
#include "disk.h"

#include "arena.h"
#include "sim.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct op {
	unsigned n;
	uint32_t ino[DISK_TX_INODES];
	struct disk_image *image[DISK_TX_INODES];
	uint32_t ordered_ino, ordered_blk;
};

struct disk {
	struct disk_options options;
	struct disk_inode inodes[DISK_INODES];
	struct op *ops; /* those after `committed` */
	size_t nops, ops_bytes;
	uint64_t committed; /* number of the last one that is on the platter */
	struct disk_block **unflushed;
	size_t nunflushed;
	int64_t now;
};

int __real_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t size);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);

static uint8_t *pages;
static int pages_fd;
static uint32_t *used; /* of each inode: pages that may have bytes */

static size_t blks_of(int64_t size)
{
	return ((size_t)size + DISK_BLK_BYTES - 1) / DISK_BLK_BYTES;
}

/* All zeros again. */
static void empty_pages(uint32_t ino)
{
	memset(pages + (size_t)ino * DISK_FILE_BYTES, 0, used[ino] * (size_t)DISK_BLK_BYTES);
	used[ino] = 0;
}

struct disk *disk_new(const struct disk_options *o)
{
	const size_t bytes = (size_t)DISK_INODES * DISK_FILE_BYTES;
	struct disk *d = arena_alloc(sizeof(*d));

	if (!pages) {
		const size_t all = bytes + DISK_INODES * sizeof(*used);

		pages_fd = __real_memfd_create("sim-pages", MFD_CLOEXEC);
		if (pages_fd < 0 || __real_ftruncate(pages_fd, (off_t)all) < 0)
			sim_give_up("no memory for the pages");
		pages = __real_mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
				    pages_fd, 0);
		if (pages == MAP_FAILED)
			sim_give_up("no memory for the pages");
		used = (uint32_t *)(pages + bytes);
	}
	for (uint32_t ino = 0; ino < DISK_INODES; ino++)
		empty_pages(ino);
	d->options = *o;
	d->now = (int64_t)1700000000 * 1000000000;
	return d;
}

struct disk_inode *disk_inode(struct disk *d, uint32_t ino)
{
	return ino && ino < DISK_INODES && d->inodes[ino].now ? &d->inodes[ino] : NULL;
}

uint8_t *disk_pages(struct disk *d, uint32_t ino)
{
	(void)d;
	return pages + (size_t)ino * DISK_FILE_BYTES;
}

int disk_pages_fd(void)
{
	return pages_fd;
}

void disk_use(struct disk *d, uint32_t ino, int64_t end)
{
	(void)d;
	if (used[ino] < blks_of(end))
		used[ino] = (uint32_t)blks_of(end);
}

bool disk_is_page(const struct disk *d, const void *p)
{
	(void)d;
	return (const uint8_t *)p >= pages &&
	       (const uint8_t *)p < pages + (size_t)DISK_INODES * DISK_FILE_BYTES;
}

int64_t disk_now(struct disk *d)
{
	return d->now;
}

void disk_pass_time(struct disk *d, int64_t ns)
{
	d->now += ns;
}

uint64_t disk_head(const struct disk *d)
{
	return d->committed + d->nops;
}

uint64_t disk_committed(const struct disk *d)
{
	return d->committed;
}

static void block_unref(struct disk_block *b)
{
	/* One that is not flushed is in a list. */
	if (!b || --b->refs || b->n > 1)
		return;
	for (uint32_t k = 0; k < b->n; k++)
		arena_free(b->version[k]);
	arena_free(b);
}

static struct disk_block *block_new(const uint8_t *bytes)
{
	struct disk_block *b = arena_alloc(sizeof(*b));

	b->n = 1;
	b->version[0] = arena_copy(bytes, DISK_BLK_BYTES);
	return b;
}

static void block_write(struct disk *d, struct disk_block *b, const uint8_t *bytes)
{
	if (b->n == DISK_VERSIONS) {
		arena_free(b->version[1]);
		memmove(&b->version[1], &b->version[2], (DISK_VERSIONS - 2) * sizeof(uint8_t *));
		b->n--;
	}
	if (b->n == 1) {
		d->unflushed = arena_grow(d->unflushed, d->nunflushed * sizeof(b),
					  (d->nunflushed + 1) * sizeof(b));
		d->unflushed[d->nunflushed++] = b;
	}
	b->version[b->n++] = arena_copy(bytes, DISK_BLK_BYTES);
}

static void block_settle(struct disk_block *b, uint32_t which)
{
	for (uint32_t k = 0; k < b->n; k++)
		if (k != which)
			arena_free(b->version[k]);
	b->version[0] = b->version[which];
	b->n = 1;
	if (!b->refs) {
		b->refs = 1;
		block_unref(b);
	}
}

static void flush(struct disk *d)
{
	while (d->nunflushed) {
		struct disk_block *b = d->unflushed[--d->nunflushed];

		block_settle(b, b->n - 1);
	}
}

static void drop_image(struct disk_image *m)
{
	if (!m || --m->refs)
		return;
	disk_cut_extents(m, 0);
	for (size_t k = 0; k < m->nxattrs; k++) {
		arena_free(m->xattrs[k].name);
		arena_free(m->xattrs[k].value);
	}
	for (size_t k = 0; k < m->nentries; k++)
		arena_free(m->entries[k].name);
	arena_free(m->xattrs);
	arena_free(m->entries);
	arena_free(m->extents);
	arena_free(m->target);
	arena_free(m);
}

static struct disk_image *clone_image(const struct disk_image *from)
{
	struct disk_image *m = arena_copy(from, sizeof(*from));

	m->refs = 1;
	m->xattrs = arena_copy(from->xattrs, from->nxattrs * sizeof(*m->xattrs));
	for (size_t k = 0; k < m->nxattrs; k++) {
		m->xattrs[k].name = arena_text(from->xattrs[k].name);
		m->xattrs[k].value = arena_copy(from->xattrs[k].value, from->xattrs[k].size);
	}
	m->entries = arena_copy(from->entries, from->nentries * sizeof(*m->entries));
	for (size_t k = 0; k < m->nentries; k++)
		m->entries[k].name = arena_text(from->entries[k].name);
	m->extents = arena_copy(from->extents, from->nextents * sizeof(*m->extents));
	for (size_t k = 0; k < m->nextents; k++)
		if (m->extents[k].block)
			m->extents[k].block->refs++;
	if (from->target)
		m->target = arena_text(from->target);
	return m;
}

void disk_extent_set(struct disk_extent *e, enum disk_extent_state state, struct disk_block *b)
{
	if (b)
		b->refs++;
	block_unref(e->block);
	*e = (struct disk_extent){ state, b };
}

void disk_cut_extents(struct disk_image *m, size_t nblk)
{
	for (size_t k = nblk; k < m->nextents; k++)
		disk_extent_set(&m->extents[k], DISK_HOLE, NULL);
	if (m->nextents > nblk)
		m->nextents = nblk;
}

struct disk_extent *disk_extent(struct disk_image *m, size_t blk)
{
	if (blk >= m->nextents) {
		m->extents = arena_grow(m->extents, m->nextents * sizeof(*m->extents),
					(blk + 1) * sizeof(*m->extents));
		memset(m->extents + m->nextents, 0, (blk + 1 - m->nextents) * sizeof(*m->extents));
		m->nextents = blk + 1;
	}
	return &m->extents[blk];
}

enum disk_extent_state disk_state(const struct disk_image *m, size_t blk)
{
	return blk < m->nextents ? m->extents[blk].state : DISK_HOLE;
}

void disk_begin(struct disk_tx *tx)
{
	*tx = (struct disk_tx){ .n = 0 };
}

struct disk_image *disk_edit(struct disk *d, struct disk_tx *tx, uint32_t ino)
{
	for (unsigned k = 0; k < tx->n; k++)
		if (tx->ino[k] == ino)
			return tx->image[k];
	if (d->inodes[ino].is_fixed)
		sim_violation("a change of inode %u, which is in a lower layer", ino);
	tx->ino[tx->n] = ino;
	return tx->image[tx->n++] = clone_image(d->inodes[ino].now);
}

uint32_t disk_create(struct disk *d, struct disk_tx *tx, mode_t mode)
{
	static const struct disk_image none;

	for (uint32_t ino = DISK_ROOT; ino < DISK_INODES; ino++) {
		struct disk_inode *i = &d->inodes[ino];
		struct disk_image *m;

		/* The journal may still bring the last one back. */
		if (i->now || i->durable || i->last_op > d->committed)
			continue;
		empty_pages(ino);
		*i = (struct disk_inode){ .btime = d->now, .last_op = i->last_op };
		m = clone_image(&none);
		m->mode = mode;
		m->atime = m->mtime = m->ctime = d->now;
		tx->ino[tx->n] = ino;
		tx->image[tx->n++] = m;
		return ino;
	}
	return 0;
}

void disk_end(struct disk *d, struct disk_tx *tx)
{
	struct op *op;

	d->ops = arena_grow(d->ops, d->nops * sizeof(*op), (d->nops + 1) * sizeof(*op));
	op = &d->ops[d->nops++];
	*op = (struct op){ .n = tx->n,
			   .ordered_ino = tx->ordered_ino,
			   .ordered_blk = tx->ordered_blk };
	for (unsigned k = 0; k < tx->n; k++) {
		struct disk_inode *i = &d->inodes[tx->ino[k]];

		op->ino[k] = tx->ino[k];
		op->image[k] = tx->image[k];
		drop_image(i->now);
		i->now = tx->image[k];
		if (i->now)
			i->now->refs++;
		i->last_op = disk_head(d);
		if (!tx->is_times_only && tx->ino[k] != tx->soft_ino)
			i->last_data_op = disk_head(d);
	}
}

void disk_reap(struct disk *d, uint32_t ino)
{
	struct disk_inode *i = disk_inode(d, ino);
	struct disk_tx tx;

	if (!i || i->now->nlink || i->opens)
		return;
	disk_begin(&tx);
	disk_edit(d, &tx, ino);
	drop_image(tx.image[0]);
	tx.image[0] = NULL;
	disk_end(d, &tx);
	memset(i->dirty, 0, sizeof(i->dirty));
}

void disk_find_stores(struct disk *d, uint32_t ino)
{
	struct disk_inode *i = disk_inode(d, ino);
	const uint8_t *p = disk_pages(d, ino);

	if (!i || !i->is_mapped)
		return;
	for (size_t blk = 0; blk < blks_of(i->size); blk++, p += DISK_BLK_BYTES) {
		const struct disk_block *b =
			disk_state(i->now, blk) == DISK_WRITTEN ? i->now->extents[blk].block : NULL;

		if (b && memcmp(b->version[b->n - 1], p, DISK_BLK_BYTES) != 0)
			i->dirty[blk] = 1;
	}
}

static void allocate(struct disk *d, uint32_t ino, size_t blk)
{
	struct disk_inode *i = &d->inodes[ino];
	struct disk_tx tx;
	struct disk_image *m;

	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	disk_extent_set(disk_extent(m, blk), DISK_UNWRITTEN, NULL);
	if (d->options.is_eager) {
		int64_t end = (int64_t)(blk + 1) * DISK_BLK_BYTES;

		end = end < i->size ? end : i->size;
		m->size = m->size > end ? m->size : end;
	}
	disk_end(d, &tx);
}

static void convert(struct disk *d, uint32_t ino, size_t blk)
{
	struct disk_inode *i = &d->inodes[ino];
	int64_t end = (int64_t)(blk + 1) * DISK_BLK_BYTES;
	struct disk_tx tx;
	struct disk_image *m;

	disk_begin(&tx);
	m = disk_edit(d, &tx, ino);
	disk_extent_set(disk_extent(m, blk), DISK_WRITTEN,
			block_new(disk_pages(d, ino) + blk * DISK_BLK_BYTES));
	end = end < i->size ? end : i->size;
	m->size = m->size > end ? m->size : end;
	disk_end(d, &tx);
}

void disk_write_back(struct disk *d, uint32_t ino, size_t blk)
{
	struct disk_inode *i = &d->inodes[ino];

	if (!i->now || !i->dirty[blk])
		return;
	i->dirty[blk] = 0;
	if (disk_state(i->now, blk) == DISK_WRITTEN) {
		block_write(d, i->now->extents[blk].block,
			    disk_pages(d, ino) + blk * DISK_BLK_BYTES);
		return;
	}
	if (disk_state(i->now, blk) == DISK_HOLE)
		allocate(d, ino, blk);
	convert(d, ino, blk);
}

void disk_write_back_all(struct disk *d, uint32_t ino)
{
	const struct disk_inode *i = disk_inode(d, ino);

	if (!i)
		return;
	disk_find_stores(d, ino);
	for (size_t blk = 0; blk < blks_of(i->size); blk++)
		disk_write_back(d, ino, blk);
}

/* Data that has to be on the platter before the first n transactions count. */
static void write_ordered(struct disk *d, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		const uint32_t ino = d->ops[k].ordered_ino, blk = d->ops[k].ordered_blk;
		const struct disk_inode *i = ino ? disk_inode(d, ino) : NULL;
		struct disk_block *b;

		/* Blocks that have no place yet have no bytes that could be seen. */
		if (!i || disk_state(i->now, blk) != DISK_WRITTEN)
			continue;
		disk_write_back(d, ino, blk);
		b = i->now->extents[blk].block;
		block_settle(b, b->n - 1);
	}
}

static void commit(struct disk *d, uint64_t upto)
{
	const size_t n = upto > d->committed ? (size_t)(upto - d->committed) : 0;

	write_ordered(d, n);
	flush(d);
	for (size_t k = 0; k < n; k++)
		for (unsigned j = 0; j < d->ops[k].n; j++) {
			struct disk_inode *i = &d->inodes[d->ops[k].ino[j]];

			drop_image(i->durable);
			i->durable = d->ops[k].image[j];
		}
	d->nops -= n;
	d->committed += n;
	memmove(d->ops, d->ops + n, d->nops * sizeof(*d->ops));
}

void disk_sync(struct disk *d, uint32_t ino, bool data_only, struct dice *dice)
{
	const struct disk_inode *i = disk_inode(d, ino);
	uint64_t upto;

	if (!i)
		return;
	disk_write_back_all(d, ino);
	upto = data_only ? i->last_data_op : i->last_op;
	if (upto > d->committed && dice_once_in(dice, 2))
		upto = disk_head(d);
	commit(d, upto);
}

void disk_sync_all(struct disk *d)
{
	for (uint32_t ino = DISK_ROOT; ino < DISK_INODES; ino++)
		if (d->inodes[ino].now && !d->inodes[ino].is_fixed)
			disk_write_back_all(d, ino);
	commit(d, disk_head(d));
}

/* Some of what is dirty, of one inode in so many. */
static void write_back_some(struct disk *d, struct dice *dice, uint64_t inodes, uint64_t blks)
{
	for (uint32_t ino = DISK_ROOT; ino < DISK_INODES; ino++) {
		const struct disk_inode *i = &d->inodes[ino];

		if (!i->now || i->is_fixed || !S_ISREG(i->now->mode) || !dice_once_in(dice, inodes))
			continue;
		disk_find_stores(d, ino);
		for (size_t blk = 0; blk < blks_of(i->size); blk++)
			if (i->dirty[blk] && dice_once_in(dice, blks))
				disk_write_back(d, ino, blk);
	}
}

void disk_background(struct disk *d, struct dice *dice)
{
	if (dice_once_in(dice, 16))
		write_back_some(d, dice, 3, 1 + dice_below(dice, 3));
	if (d->nops && dice_once_in(dice, 40))
		commit(d, d->committed + 1 + dice_below(dice, d->nops));
}

static void settle_torn(struct disk_block *b, struct dice *dice)
{
	uint8_t *mixed = arena_alloc(DISK_BLK_BYTES);

	for (size_t at = 0; at < DISK_BLK_BYTES; at += DISK_SECTOR)
		memcpy(mixed + at, b->version[dice_below(dice, b->n)] + at, DISK_SECTOR);
	arena_free(b->version[0]);
	b->version[0] = mixed;
	block_settle(b, 0);
}

static bool is_of_torn(struct disk *d, const struct disk_block *b)
{
	for (uint32_t ino = DISK_ROOT; ino < DISK_INODES; ino++) {
		const struct disk_inode *i = &d->inodes[ino];

		for (size_t k = 0; i->is_torn && i->durable && k < i->durable->nextents; k++)
			if (i->durable->extents[k].block == b)
				return true;
	}
	return false;
}

/* Each block that is not flushed has any of its versions. */
static void lose_cache(struct disk *d, struct dice *dice)
{
	while (d->nunflushed) {
		struct disk_block *b = d->unflushed[--d->nunflushed];

		if (is_of_torn(d, b) && dice_once_in(dice, 2))
			settle_torn(b, dice);
		else
			block_settle(b, (uint32_t)dice_below(dice, b->n));
	}
}

/* What an append had on the platter, and not the size with it. A file that grows does not show it
 * again: Linux zeroes it then, and here at once. */
static void forget_behind_end(const struct disk_inode *i, uint8_t *p)
{
	const size_t blk = (size_t)i->size / DISK_BLK_BYTES, at = (size_t)i->size % DISK_BLK_BYTES;

	if (!at)
		return;
	memset(p + i->size, 0, DISK_BLK_BYTES - at);
	if (disk_state(i->now, blk) == DISK_WRITTEN)
		memset(i->now->extents[blk].block->version[0] + at, 0, DISK_BLK_BYTES - at);
}

/* Only what is durable is there. */
static void restart(struct disk *d, uint32_t ino)
{
	struct disk_inode *i = &d->inodes[ino];
	uint8_t *p = disk_pages(d, ino);

	if (i->is_fixed) {
		i->opens = 0;
		i->lock = 0;
		return;
	}
	drop_image(i->now);
	if (i->durable && !i->durable->nlink) {
		drop_image(i->durable);
		i->durable = NULL;
	}
	i->now = i->durable;
	empty_pages(ino);
	if (i->now) {
		i->now->refs++;
		disk_use(d, ino, (int64_t)i->now->nextents * DISK_BLK_BYTES);
		for (size_t blk = 0; blk < i->now->nextents; blk++)
			if (i->now->extents[blk].state == DISK_WRITTEN)
				memcpy(p + blk * DISK_BLK_BYTES,
				       i->now->extents[blk].block->version[0], DISK_BLK_BYTES);
		i->size = i->now->size;
		if (S_ISREG(i->now->mode))
			forget_behind_end(i, p);
	}
	memset(i->dirty, 0, sizeof(i->dirty));
	i->opens = 0;
	i->lock = 0;
	i->is_mapped = false;
	i->last_op = i->last_data_op = 0;
}

void disk_cut_power(struct disk *d, struct dice *dice)
{
	uint64_t upto;

	if (dice_once_in(dice, 2))
		write_back_some(d, dice, 2, 2);
	upto = d->committed;
	if (dice_once_in(dice, 3))
		upto = disk_head(d);
	else if (d->nops)
		upto += dice_below(dice, d->nops + 1);
	/* What counts has its ordered data. Of the cache of the platter nothing else need be left:
	 * the last flush may have come before all of it. */
	write_ordered(d, (size_t)(upto - d->committed));
	if (upto > d->committed && dice_once_in(dice, 2))
		flush(d);
	for (size_t k = 0; k < d->nops; k++)
		for (unsigned j = 0; j < d->ops[k].n; j++) {
			struct disk_inode *i = &d->inodes[d->ops[k].ino[j]];
			struct disk_image **drop = &d->ops[k].image[j];

			if (d->committed + k < upto) {
				drop = &i->durable;
				drop_image(*drop);
				i->durable = d->ops[k].image[j];
			} else {
				drop_image(*drop);
			}
		}
	lose_cache(d, dice);
	d->nops = 0;
	d->committed = 0;
	for (uint32_t ino = DISK_ROOT; ino < DISK_INODES; ino++)
		restart(d, ino);
	d->now += (int64_t)60 * 1000000000;
}
