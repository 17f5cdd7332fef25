// SPDX-License-Identifier: Apache-2.0
/* A radix tree of 16-way nodes over chunks, its height fixed by the clip at birth (which only
 * shrinks). A slot is NULL (no block own), FULL (all own), a node, or at height 0 a leaf of 128
 * bits.
 *
 * 1. A leaf has no bit at or past the clip; FULL may stand for blocks past it: readers mask.
 * 2. A subtree whose blocks below the clip are all own is FULL, so a range costs two edge paths
 *    however long it is, and a hostile "everything is own" costs one pointer.
 * 3. Empty nodes and leaves are allowed: a failed blkmap_set leaves them behind. */
#include "veneer/blkmap.h"

#include <errno.h>
#include <string.h>

#include "veneer/cleanup.h"

#define FANOUT_SHIFT 4
#define FANOUT	     (1u << FANOUT_SHIFT)
#define RUN_MAX	     ((blk_t)1 << 62)

struct leaf {
	uint64_t bits[2];
};

struct node {
	void *slots[FANOUT];
};

struct blkmap {
	void *root;
	uint64_t clip;
	blk_t nclip; /* blocks that start below clip */
	uint64_t count;
	size_t bytes;
	unsigned height;
};

static const char full_slot;
#define FULL ((void *)(uintptr_t)&full_slot)

static blk_t slot_span(unsigned height)
{
	return (blk_t)CHUNK_BLKS << (height * FANOUT_SHIFT);
}

static blk_t min_blk(blk_t a, blk_t b)
{
	return a < b ? a : b;
}

static blk_t clip_blks(uint64_t clip)
{
	return clip / BLK_BYTES + (clip % BLK_BYTES != 0);
}

struct blkmap *blkmap_new(uint64_t clip)
{
	struct blkmap *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->clip = clip;
	m->nclip = clip_blks(clip);
	m->bytes = sizeof(*m);
	while (slot_span(m->height) < m->nclip)
		m->height++;
	return m;
}

static void slot_drop(struct blkmap *m, void **slot, unsigned height)
{
	void *s = *slot;

	*slot = NULL;
	if (!s || s == FULL)
		return;
	if (height > 0) {
		struct node *n = s;

		for (unsigned i = 0; i < FANOUT; i++)
			slot_drop(m, &n->slots[i], height - 1);
	}
	m->bytes -= height > 0 ? sizeof(struct node) : sizeof(struct leaf);
	free(s);
}

void blkmap_free(struct blkmap *m)
{
	if (!m)
		return;
	slot_drop(m, &m->root, m->height);
	free(m);
}

uint64_t blkmap_clip(const struct blkmap *m)
{
	return m->clip;
}

uint64_t blkmap_count(const struct blkmap *m)
{
	return m->count;
}

bool blkmap_is_complete(const struct blkmap *m)
{
	return m->count == m->nclip;
}

size_t blkmap_bytes(const struct blkmap *m)
{
	return m->bytes;
}

/* The leaf that holds blk, or NULL or FULL for the range [*ret_first, *ret_end) around it. */
static const void *blkmap_find(const struct blkmap *m, blk_t blk, blk_t *ret_end)
{
	const void *s = m->root;
	unsigned h = m->height;
	blk_t span = slot_span(h);
	blk_t base = 0;

	while (s && s != FULL && h > 0) {
		const struct node *n = s;

		span = slot_span(--h);
		unsigned i = (unsigned)((blk - base) / span);

		s = n->slots[i];
		base += i * span;
	}
	*ret_end = base + span;
	return s;
}

static bool leaf_test(const struct leaf *l, unsigned i)
{
	return l->bits[i / 64] >> (i % 64) & 1;
}

bool blkmap_is_own(const struct blkmap *m, blk_t blk)
{
	blk_t end;

	if (blk >= m->nclip)
		return true;

	const void *s = blkmap_find(m, blk, &end);

	if (!s || s == FULL)
		return s == FULL;
	return leaf_test(s, (unsigned)(blk % CHUNK_BLKS));
}

/* First index at or after i whose bit is not `is_set`; CHUNK_BLKS at the end. */
static unsigned leaf_run_end(const struct leaf *l, unsigned i, bool is_set)
{
	while (i < CHUNK_BLKS) {
		uint64_t w = (is_set ? ~l->bits[i / 64] : l->bits[i / 64]) >> (i % 64);

		if (w)
			return i + (unsigned)__builtin_ctzll(w);
		i = (i / 64 + 1) * 64;
	}
	return CHUNK_BLKS;
}

blk_t blkmap_run(const struct blkmap *m, blk_t blk, blk_t max, bool *ret_is_own)
{
	bool is_own = blkmap_is_own(m, blk);
	blk_t at = blk;

	*ret_is_own = is_own;
	if (blk >= m->nclip)
		return max;
	max = min_blk(max, RUN_MAX);
	while (at - blk < max && at < m->nclip) {
		blk_t end;
		const void *s = blkmap_find(m, at, &end);

		if (!s || s == FULL) {
			if ((s == FULL) != is_own)
				break;
			at = end;
			continue;
		}

		blk_t base = at - at % CHUNK_BLKS;
		blk_t stop = base + leaf_run_end(s, (unsigned)(at - base), is_own);

		at = stop;
		if (at < end && at < m->nclip)
			return min_blk(at - blk, max);
	}
	if (at >= m->nclip)
		at = is_own ? blk + max : m->nclip;
	return min_blk(at - blk, max);
}

/* Bits [first, end) of a chunk. */
static void bits_of_range(unsigned first, unsigned end, uint64_t bits[2])
{
	for (unsigned w = 0; w < 2; w++) {
		unsigned lo = first > w * 64 ? first - w * 64 : 0;
		unsigned hi = end > w * 64 ? end - w * 64 : 0;

		hi = hi > 64 ? 64 : hi;
		bits[w] = lo < hi ? (~0ull >> (64 - (hi - lo))) << lo : 0;
	}
}

static void bits_below_clip(const struct blkmap *m, blk_t base, uint64_t bits[2])
{
	bits_of_range(0, (unsigned)min_blk(CHUNK_BLKS, m->nclip - base), bits);
}

static uint64_t slot_count(const struct blkmap *m, const void *s, unsigned height, blk_t base)
{
	if (!s || base >= m->nclip)
		return 0;
	if (s == FULL)
		return min_blk(slot_span(height), m->nclip - base);
	if (height == 0) {
		const struct leaf *l = s;

		return (uint64_t)__builtin_popcountll(l->bits[0]) +
		       (uint64_t)__builtin_popcountll(l->bits[1]);
	}

	const struct node *n = s;
	uint64_t sum = 0;

	for (unsigned i = 0; i < FANOUT; i++)
		sum += slot_count(m, n->slots[i], height - 1, base + i * slot_span(height - 1));
	return sum;
}

/* Nodes and leaf on the way to blk, so that a later fill needs no memory. */
static int blkmap_prepare(struct blkmap *m, blk_t blk)
{
	void **slot = &m->root;
	blk_t base = 0;

	for (unsigned h = m->height;; h--) {
		if (*slot == FULL)
			return 0;
		if (!*slot) {
			size_t len = h > 0 ? sizeof(struct node) : sizeof(struct leaf);

			*slot = calloc(1, len);
			if (!*slot)
				return -ENOMEM;
			m->bytes += len;
		}
		if (h == 0)
			return 0;

		struct node *n = *slot;
		blk_t span = slot_span(h - 1);
		unsigned i = (unsigned)((blk - base) / span);

		slot = &n->slots[i];
		base += i * span;
	}
}

static bool slot_is_full(const struct blkmap *m, const void *s, unsigned height, blk_t base)
{
	if (height == 0) {
		const struct leaf *l = s;
		uint64_t want[2];

		bits_below_clip(m, base, want);
		return l->bits[0] == want[0] && l->bits[1] == want[1];
	}

	const struct node *n = s;
	blk_t span = slot_span(height - 1);

	for (unsigned i = 0; i < FANOUT && base + i * span < m->nclip; i++)
		if (n->slots[i] != FULL)
			return false;
	return true;
}

/* Set [first, end) where it meets this slot. The paths to both ends have been prepared. */
static void slot_fill(struct blkmap *m, void **slot, unsigned height, blk_t base, blk_t first,
		      blk_t end)
{
	blk_t span = slot_span(height);

	if (*slot == FULL || first >= base + span || end <= base)
		return;
	if (first <= base && end >= min_blk(base + span, m->nclip)) {
		slot_drop(m, slot, height);
		*slot = FULL;
		return;
	}
	if (height == 0) {
		struct leaf *l = *slot;
		uint64_t bits[2];

		bits_of_range((unsigned)(first > base ? first - base : 0),
			      (unsigned)min_blk(end - base, CHUNK_BLKS), bits);
		l->bits[0] |= bits[0];
		l->bits[1] |= bits[1];
	} else {
		struct node *n = *slot;
		blk_t sub = slot_span(height - 1);

		for (unsigned i = 0; i < FANOUT; i++)
			slot_fill(m, &n->slots[i], height - 1, base + i * sub, first, end);
	}
	if (slot_is_full(m, *slot, height, base)) {
		slot_drop(m, slot, height);
		*slot = FULL;
	}
}

/* Set bits in [blk, end), both at most nclip: what a fill will add to count. */
static blk_t blkmap_missing(const struct blkmap *m, blk_t blk, blk_t end)
{
	blk_t missing = 0;

	while (blk < end) {
		bool is_own;
		blk_t n = blkmap_run(m, blk, end - blk, &is_own);

		missing += is_own ? 0 : n;
		blk += n;
	}
	return missing;
}

int blkmap_set(struct blkmap *m, blk_t blk, blk_t n)
{
	if (n == 0 || blk >= m->nclip)
		return 0;

	blk_t end = n > m->nclip - blk ? m->nclip : blk + n;
	blk_t missing = blkmap_missing(m, blk, end);

	if (missing == 0)
		return 0;

	int r = blkmap_prepare(m, blk);

	r = r ?: blkmap_prepare(m, end - 1);
	if (r < 0)
		return r;
	slot_fill(m, &m->root, m->height, 0, blk, end);
	m->count += missing;
	return 0;
}

int blkmap_set_bits(struct blkmap *m, uint64_t chunk, const uint64_t bits[2])
{
	blk_t base = chunk * CHUNK_BLKS;
	uint64_t mask[2];
	blk_t end;

	if (chunk > m->nclip / CHUNK_BLKS || base >= m->nclip)
		return 0;
	if (blkmap_find(m, base, &end) == FULL)
		return 0;

	int r = blkmap_prepare(m, base);

	if (r < 0)
		return r;

	struct leaf *l = (struct leaf *)blkmap_find(m, base, &end);

	bits_below_clip(m, base, mask);
	for (unsigned w = 0; w < 2; w++) {
		m->count += (uint64_t)__builtin_popcountll(bits[w] & mask[w] & ~l->bits[w]);
		l->bits[w] |= bits[w] & mask[w];
	}
	if (slot_is_full(m, l, 0, base))
		slot_fill(m, &m->root, m->height, 0, base, min_blk(base + CHUNK_BLKS, m->nclip));
	return 0;
}

static void slot_truncate(struct blkmap *m, void **slot, unsigned height, blk_t base)
{
	if (base >= m->nclip) {
		slot_drop(m, slot, height);
		return;
	}
	/* FULL that reaches past the clip stays: splitting it would need memory. */
	if (!*slot || *slot == FULL || base + slot_span(height) <= m->nclip)
		return;
	if (height == 0) {
		struct leaf *l = *slot;
		uint64_t mask[2];

		bits_below_clip(m, base, mask);
		l->bits[0] &= mask[0];
		l->bits[1] &= mask[1];
		return;
	}

	struct node *n = *slot;
	blk_t span = slot_span(height - 1);

	for (unsigned i = 0; i < FANOUT; i++)
		slot_truncate(m, &n->slots[i], height - 1, base + i * span);
}

void blkmap_truncate(struct blkmap *m, uint64_t size)
{
	if (size >= m->clip)
		return;
	m->clip = size;
	m->nclip = clip_blks(size);
	slot_truncate(m, &m->root, m->height, 0);
	m->count = slot_count(m, m->root, m->height, 0);
}

bool blkmap_next_chunk(const struct blkmap *m, uint64_t *chunk, uint64_t bits[2])
{
	if (*chunk > m->nclip / CHUNK_BLKS)
		return false;

	blk_t at = *chunk * CHUNK_BLKS;

	while (at < m->nclip) {
		blk_t end;
		const void *s = blkmap_find(m, at, &end);
		const struct leaf *l = s == FULL ? NULL : s;

		if (s == FULL || (s && (l->bits[0] || l->bits[1]))) {
			*chunk = at / CHUNK_BLKS;
			bits_below_clip(m, *chunk * CHUNK_BLKS, bits);
			if (l)
				memcpy(bits, l->bits, sizeof(l->bits));
			return true;
		}
		at = end;
	}
	return false;
}
