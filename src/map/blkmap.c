// SPDX-License-Identifier: Apache-2.0
/* A radix tree of 8-way nodes over chunks, its height fixed by the clip at birth (which only
 * shrinks). A slot is NULL (no block own), FULL (all own), a node, or at height 0 a leaf of 128
 * bits.
 *
 * 1. A leaf has no bit at or past the clip; FULL may stand for blocks past it: readers mask.
 * 2. A subtree whose blocks below the clip are all own is FULL, so a range costs two edge paths
 *    however long it is, and a hostile "everything is own" costs one pointer.
 * 3. Empty nodes and leaves are allowed: blkmap_reserve and calls that fail leave them behind.
 * 4. A change costs the paths to the ends of its range and the nodes it frees or makes, never the
 *    size of the map. So a hostile log cannot have the same nodes visited again and again. */
#include "veneer/map/blkmap.h"

#include <errno.h>
#include <string.h>

#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"

#define FANOUT_SHIFT 3
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

/* The cost of an allocation of so many bytes: the allocator's header and rounding are most of a
 * leaf. */
static size_t heap_bytes(size_t len)
{
	return (len + 23) & ~(size_t)15;
}

static size_t slot_bytes(unsigned height)
{
	return heap_bytes(height > 0 ? sizeof(struct node) : sizeof(struct leaf));
}

static blk_t slot_span(unsigned height)
{
	return (blk_t)CHUNK_BLKS << (height * FANOUT_SHIFT);
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
	m->bytes = heap_bytes(sizeof(*m));
	stats_memory_add(STATS_MEM_MAPS, (int64_t)m->bytes);
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
	m->bytes -= slot_bytes(height);
	stats_memory_add(STATS_MEM_MAPS, -(int64_t)slot_bytes(height));
	free(s);
}

void blkmap_free(struct blkmap *m)
{
	if (!m)
		return;
	slot_drop(m, &m->root, m->height);
	stats_memory_add(STATS_MEM_MAPS, -(int64_t)m->bytes);
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
	max = MIN(max, RUN_MAX);
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
			return MIN(at - blk, max);
	}
	if (at >= m->nclip)
		at = is_own ? blk + max : m->nclip;
	return MIN(at - blk, max);
}

/* Bits [first, end) of a chunk. */
static void bits_of_range(unsigned first, unsigned end, uint64_t bits[2])
{
	for (unsigned w = 0; w < 2; w++) {
		unsigned lo = first > w * 64 ? first - w * 64 : 0;
		unsigned hi = end > w * 64 ? end - w * 64 : 0;

		hi = MIN(hi, 64);
		bits[w] = lo < hi ? (~0ull >> (64 - (hi - lo))) << lo : 0;
	}
}

static void bits_below_clip(const struct blkmap *m, blk_t base, uint64_t bits[2])
{
	bits_of_range(0, (unsigned)MIN(CHUNK_BLKS, m->nclip - base), bits);
}

/* Own blocks of [first, end) in this slot. */
static blk_t slot_count(const void *s, unsigned height, blk_t base, blk_t first, blk_t end)
{
	blk_t span = slot_span(height);

	if (!s || base >= end || base + span <= first)
		return 0;
	first = MAX(first, base);
	end = MIN(end, base + span);
	if (s == FULL)
		return end - first;
	if (height == 0) {
		const struct leaf *l = s;
		uint64_t bits[2];

		bits_of_range((unsigned)(first - base), (unsigned)(end - base), bits);
		return (blk_t)__builtin_popcountll(l->bits[0] & bits[0]) +
		       (blk_t)__builtin_popcountll(l->bits[1] & bits[1]);
	}

	const struct node *n = s;
	blk_t sub = slot_span(height - 1), sum = 0;

	for (unsigned i = 0; i < FANOUT; i++)
		sum += slot_count(n->slots[i], height - 1, base + i * sub, first, end);
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
			*slot = calloc(1, h > 0 ? sizeof(struct node) : sizeof(struct leaf));
			if (!*slot)
				return -ENOMEM;
			m->bytes += slot_bytes(h);
			stats_memory_add(STATS_MEM_MAPS, (int64_t)slot_bytes(h));
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

/* Set [first, end) where it meets this slot; how many were not own before. The paths to both ends
 * have been prepared. */
static blk_t slot_fill(struct blkmap *m, void **slot, unsigned height, blk_t base, blk_t first,
		       blk_t end)
{
	blk_t span = slot_span(height), added = 0;

	if (*slot == FULL || first >= base + span || end <= base)
		return 0;

	blk_t slot_end = MIN(base + span, m->nclip);

	if (first <= base && end >= slot_end) {
		added = slot_end - base - slot_count(*slot, height, base, base, slot_end);
		slot_drop(m, slot, height);
		*slot = FULL;
		return added;
	}
	if (height == 0) {
		struct leaf *l = *slot;
		uint64_t bits[2];

		bits_of_range((unsigned)(first > base ? first - base : 0),
			      (unsigned)MIN(end - base, CHUNK_BLKS), bits);
		for (unsigned w = 0; w < 2; w++) {
			added += (blk_t)__builtin_popcountll(bits[w] & ~l->bits[w]);
			l->bits[w] |= bits[w];
		}
	} else {
		struct node *n = *slot;
		blk_t sub = slot_span(height - 1);

		for (unsigned i = 0; i < FANOUT; i++)
			added += slot_fill(m, &n->slots[i], height - 1, base + i * sub, first, end);
	}
	if (slot_is_full(m, *slot, height, base)) {
		slot_drop(m, slot, height);
		*slot = FULL;
	}
	return added;
}

/* The end of a run that starts below the clip. */
static blk_t range_end(const struct blkmap *m, blk_t blk, blk_t n)
{
	return n > m->nclip - blk ? m->nclip : blk + n;
}

int blkmap_reserve(struct blkmap *m, blk_t blk, blk_t n)
{
	if (n == 0 || blk >= m->nclip)
		return 0;

	int r = blkmap_prepare(m, blk);

	r = r ?: blkmap_prepare(m, range_end(m, blk, n) - 1);
	INVARIANTS(blkmap_check_invariants(m));
	return r;
}

int blkmap_set(struct blkmap *m, blk_t blk, blk_t n)
{
	int r = blkmap_reserve(m, blk, n);

	if (r == 0 && n && blk < m->nclip)
		m->count += slot_fill(m, &m->root, m->height, 0, blk, range_end(m, blk, n));
	INVARIANTS(blkmap_check_invariants(m));
	return r;
}

void blkmap_bits(const struct blkmap *m, uint64_t chunk, uint64_t ret_bits[2])
{
	blk_t base = chunk * CHUNK_BLKS, end;

	ret_bits[0] = ret_bits[1] = 0;
	if (chunk > m->nclip / CHUNK_BLKS || base >= m->nclip)
		return;

	const void *s = blkmap_find(m, base, &end);

	if (s == FULL)
		bits_below_clip(m, base, ret_bits);
	else if (s)
		memcpy(ret_bits, ((const struct leaf *)s)->bits, sizeof(uint64_t[2]));
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
		slot_fill(m, &m->root, m->height, 0, base, MIN(base + CHUNK_BLKS, m->nclip));
	INVARIANTS(blkmap_check_invariants(m));
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
	} else {
		struct node *n = *slot;
		blk_t span = slot_span(height - 1);

		for (unsigned i = 0; i < FANOUT; i++)
			slot_truncate(m, &n->slots[i], height - 1, base + i * span);
	}
	if (slot_is_full(m, *slot, height, base)) {
		slot_drop(m, slot, height);
		*slot = FULL;
	}
}

void blkmap_truncate(struct blkmap *m, uint64_t size)
{
	if (size >= m->clip)
		return;

	blk_t end = m->nclip;

	m->clip = size;
	m->nclip = clip_blks(size);
	m->count -= slot_count(m->root, m->height, 0, m->nclip, end);
	slot_truncate(m, &m->root, m->height, 0);
	INVARIANTS(blkmap_check_invariants(m));
}

/* A stretch that src (NULL: all own) and except (NULL: nothing own) tell alike, or a part of one
 * chunk. */
struct stretch {
	const void *src, *except;
	blk_t first, end;
};

static struct stretch stretch_at(const struct blkmap *src, const struct blkmap *except, blk_t at,
				 blk_t end)
{
	struct stretch s = { .src = FULL, .first = at, .end = end };
	blk_t stop;

	if (src) {
		s.src = blkmap_find(src, at, &stop);
		s.end = MIN(s.end, stop);
	}
	if (except) {
		s.except = blkmap_find(except, at, &stop);
		s.end = MIN(s.end, stop);
	}
	return s;
}

static int stretch_add(struct blkmap *dst, const struct stretch *s, bool is_rehearsal)
{
	blk_t base = s->first - s->first % CHUNK_BLKS;
	uint64_t bits[2];

	if (!s->src || s->except == FULL)
		return 0;
	if (s->src == FULL && !s->except)
		return is_rehearsal ? blkmap_reserve(dst, s->first, s->end - s->first)
				    : blkmap_set(dst, s->first, s->end - s->first);

	bits_of_range((unsigned)(s->first - base), (unsigned)(s->end - base), bits);
	for (unsigned w = 0; w < 2; w++) {
		if (s->src != FULL)
			bits[w] &= ((const struct leaf *)s->src)->bits[w];
		if (s->except)
			bits[w] &= ~((const struct leaf *)s->except)->bits[w];
	}
	if (!bits[0] && !bits[1])
		return 0;
	return is_rehearsal ? blkmap_reserve(dst, base, 1)
			    : blkmap_set_bits(dst, base / CHUNK_BLKS, bits);
}

int blkmap_add(struct blkmap *dst, blk_t first, blk_t end, const struct blkmap *src,
	       const struct blkmap *except)
{
	end = MIN(end, dst->nclip);
	end = src ? MIN(end, src->nclip) : end;
	end = except ? MIN(end, except->nclip) : end;

	/* First all the memory, so that no part of it is added without the rest. */
	for (int is_rehearsal = 1; is_rehearsal >= 0; is_rehearsal--) {
		struct stretch s;

		for (blk_t at = first; at < end; at = s.end) {
			s = stretch_at(src, except, at, end);

			int r = stretch_add(dst, &s, is_rehearsal);

			if (r < 0)
				return r;
		}
	}
	return 0;
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

/* ---- invariants ---- */

/* The sums over the slots that were looked at. */
struct tally {
	unsigned left; /* slots that may still be looked at */
	blk_t own;
	size_t bytes;
};

static const char *slot_check(const struct blkmap *m, const void *s, unsigned height, blk_t base,
			      struct tally *sum)
{
	const char *broken = NULL;

	if (!s || !sum->left)
		return NULL;
	sum->left--;
	if (base >= m->nclip)
		return "blkmap: no slot begins at or past the clip";
	if (s == FULL) {
		sum->own += MIN(base + slot_span(height), m->nclip) - base;
		return NULL;
	}
	sum->bytes += slot_bytes(height);
	if (slot_is_full(m, s, height, base))
		return "blkmap: a slot that is all own is FULL";
	if (height > 0) {
		const struct node *n = s;
		blk_t span = slot_span(height - 1);

		for (unsigned i = 0; i < FANOUT && !broken; i++)
			broken = slot_check(m, n->slots[i], height - 1, base + i * span, sum);
		return broken;
	}

	const struct leaf *l = s;
	uint64_t mask[2];

	bits_below_clip(m, base, mask);
	sum->own +=
		(blk_t)__builtin_popcountll(l->bits[0]) + (blk_t)__builtin_popcountll(l->bits[1]);
	return l->bits[0] & ~mask[0] || l->bits[1] & ~mask[1]
		       ? "blkmap: a leaf has no bit at or past the clip"
		       : NULL;
}

const char *blkmap_check_invariants(const struct blkmap *m)
{
	struct tally sum = { .left = INVARIANTS_MAX, .bytes = heap_bytes(sizeof(*m)) };

	if (m->nclip != clip_blks(m->clip) || slot_span(m->height) < m->nclip)
		return "blkmap: the tree reaches to the clip";
	if (m->count > m->nclip)
		return "blkmap: no more blocks are own than the clip has";
	if (m->bytes > sum.bytes + INVARIANTS_MAX * slot_bytes(1))
		return NULL;

	const char *broken = slot_check(m, m->root, m->height, 0, &sum);

	if (broken || !sum.left)
		return broken;
	return sum.own != m->count     ? "blkmap: count is the number of own blocks"
	       : sum.bytes != m->bytes ? "blkmap: bytes is the size of all slots"
				       : NULL;
}
