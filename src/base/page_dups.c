// SPDX-License-Identifier: Apache-2.0
/* Extents and copies live in two arrays that grow, and are linked by their places in them: half the
 * size of pointers.
 *
 * Invariants:
 * 1. An extent that is in use is in the bucket of its key and has at least one copy; a copy is of a
 *    mount that takes part.
 * 2. nheld of an extent is the number of its copies that are held; the others are ghosts, by which
 *    a refault is known.
 * 3. extra_blk is the sum over all extents of (nheld - 1) * nblk where nheld > 1.
 * 4. The table is settled when `quiet` extents in a row, as many as there are places, held nothing
 *    that may go now or by `next_ms`. Each event that may change that sets quiet to 0. */
#include "veneer/base/page_dups.h"

#include "veneer/base/array.h"
#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE	      UINT32_MAX
#define FIRST_SLOTS   256u
#define DOUBLINGS_MAX 16u
#define ROOM_LOOKS    64u /* extents that are looked at for one that can be forgotten at no loss */

const struct page_dups_rules page_dups_rules_default = {
	/* Eight of the paper's slices at once, an eighth as often: the dropping costs most, least
	 * in large batches. */
	.scan = 8 * (1u << 14) / CHUNK_BLKS,
	.max = 1u << 18,
	.rest_ms = 500,
	.spare_ms = 2000,
	.spare_max_ms = 120000,
	.refault_ms = 10000,
	.low_percent = 60,
	.high_percent = 80,
};

struct copy {
	uint32_t next; /* of its extent, or of the free ones */
	uint32_t mount, node, reader;
	uint32_t at_ms; /* when it was sent, or dropped */
	uint32_t until_ms; /* not to be dropped before */
	uint16_t refaults;
	bool is_held;
};

struct extent {
	struct page_dups_key key;
	uint32_t next; /* in its bucket, or of the free ones */
	uint32_t first; /* the head: latest sent; NONE: a free place */
	uint32_t nheld, nblk;
};

struct member {
	uint32_t wish;
	uint32_t ncopies; /* ghosts included */
};

/* One array: places 0..end were used at some time, those in `freed` are free again. */
struct slots {
	uint32_t n, end, freed;
};

struct page_dups {
	struct page_dups_rules rules;
	struct extent *extents;
	struct slots extent_slots;
	struct copy *copies;
	struct slots copy_slots;
	uint32_t *buckets, nbuckets; /* a power of two */
	uint32_t nextents, ncopies; /* in use */
	uint32_t *numbers; /* of mounts, ascending; members are beside them */
	struct member *members;
	size_t nmembers, members_max;
	uint32_t limit;
	bool is_adjusted;
	uint32_t hand, room_hand, quiet;
	bool has_next;
	uint32_t next_ms;
	uint64_t nheld, extra_blk, evictions, refaults, forgotten;
	uint32_t *order; /* the copies of one extent, when they are sorted */
	size_t order_max;
};

static bool is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* ---- places ---- */

static int grow(void **array, size_t item, struct slots *s, uint32_t max)
{
	uint32_t n = s->n ? s->n * 2 : FIRST_SLOTS;
	void *p;

	if (n > max)
		n = max;
	if (n <= s->n)
		return -ENOSPC;
	p = realloc(*array, n * item);
	if (!p)
		return -ENOMEM;
	*array = p;
	s->n = n;
	return 0;
}

static uint32_t bucket_of(const struct page_dups *c, const struct page_dups_key *k)
{
	const uint64_t words[] = { k->dev, k->ino, k->index };

	return (uint32_t)hash_key(words, sizeof(words), 0) & (c->nbuckets - 1);
}

/* As many as there are places for extents. Without memory the chains get longer. */
static void rehash(struct page_dups *c)
{
	uint32_t n = FIRST_SLOTS, *buckets;

	while (n < c->extent_slots.n)
		n *= 2;
	if (n == c->nbuckets)
		return;
	buckets = malloc(n * sizeof(*buckets));
	if (!buckets)
		return;
	memset(buckets, 0xff, n * sizeof(*buckets));
	free(c->buckets);
	c->buckets = buckets;
	c->nbuckets = n;
	for (uint32_t i = 0; i < c->extent_slots.end; i++) {
		struct extent *e = &c->extents[i];

		if (e->first == NONE)
			continue;
		e->next = buckets[bucket_of(c, &e->key)];
		buckets[bucket_of(c, &e->key)] = i;
	}
}

static bool is_key(const struct page_dups_key *a, const struct page_dups_key *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->index == b->index;
}

static uint32_t find(const struct page_dups *c, const struct page_dups_key *k)
{
	uint32_t i = c->nbuckets ? c->buckets[bucket_of(c, k)] : NONE;

	while (i != NONE && !is_key(&c->extents[i].key, k))
		i = c->extents[i].next;
	return i;
}

static uint64_t extra_of(const struct extent *e)
{
	return e->nheld > 1 ? (uint64_t)(e->nheld - 1) * e->nblk : 0;
}

static void set_held(struct page_dups *c, struct extent *e, struct copy *p, bool is_held)
{
	if (p->is_held == is_held)
		return;
	c->extra_blk -= extra_of(e);
	p->is_held = is_held;
	e->nheld += is_held ? 1 : -1u;
	c->nheld += is_held ? 1 : -1ull;
	c->extra_blk += extra_of(e);
}

static struct member *member_of(const struct page_dups *c, uint32_t number)
{
	size_t lo = 0, hi = c->nmembers;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (c->numbers[mid] == number)
			return &c->members[mid];
		if (c->numbers[mid] < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static void free_copy(struct page_dups *c, uint32_t i)
{
	struct member *m = member_of(c, c->copies[i].mount);

	if (m)
		m->ncopies--;
	c->copies[i].next = c->copy_slots.freed;
	c->copy_slots.freed = i;
	c->ncopies--;
}

/* Free an extent whose copies are gone. */
static void free_extent(struct page_dups *c, uint32_t i)
{
	uint32_t *link = &c->buckets[bucket_of(c, &c->extents[i].key)];

	while (*link != i)
		link = &c->extents[*link].next;
	*link = c->extents[i].next;
	c->extents[i].first = NONE;
	c->extents[i].next = c->extent_slots.freed;
	c->extent_slots.freed = i;
	c->nextents--;
}

static void forget_extent(struct page_dups *c, uint32_t i)
{
	struct extent *e = &c->extents[i];

	for (uint32_t k = e->first, next; k != NONE; k = next) {
		next = c->copies[k].next;
		set_held(c, e, &c->copies[k], false);
		free_copy(c, k);
	}
	free_extent(c, i);
	c->forgotten++;
}

/* The table is full: an extent goes, best one with no copy too many. */
static void make_room(struct page_dups *c)
{
	uint32_t candidate = NONE;

	for (uint32_t looks = 0, seen = 0; looks < ROOM_LOOKS && seen < c->extent_slots.end;
	     seen++) {
		const struct extent *e;

		c->room_hand = c->room_hand + 1 < c->extent_slots.end ? c->room_hand + 1 : 0;
		e = &c->extents[c->room_hand];
		if (e->first == NONE)
			continue;
		looks++;
		candidate = c->room_hand;
		if (e->nheld < 2)
			break;
	}
	if (candidate != NONE)
		forget_extent(c, candidate);
}

/* A place, or NONE: no memory. next: where in a free item the next free one stands. */
static uint32_t take_place(struct page_dups *c, void **array, size_t item, struct slots *s,
			   size_t next)
{
	uint32_t i;

	if (s->freed != NONE) {
		i = s->freed;
		memcpy(&s->freed, (const char *)*array + i * item + next, sizeof(s->freed));
		return i;
	}
	if (s->end == s->n && grow(array, item, s, c->rules.max) < 0)
		return NONE;
	return s->end++;
}

static uint32_t new_extent(struct page_dups *c, const struct page_dups_key *k)
{
	uint32_t i = take_place(c, (void **)&c->extents, sizeof(*c->extents), &c->extent_slots,
				offsetof(struct extent, next));

	if (i == NONE)
		return NONE;
	c->extents[i].first = NONE;
	rehash(c);
	if (!c->buckets) {
		c->extents[i].next = c->extent_slots.freed;
		c->extent_slots.freed = i;
		return NONE;
	}
	c->extents[i] =
		(struct extent){ .key = *k, .next = c->buckets[bucket_of(c, k)], .first = NONE };
	c->buckets[bucket_of(c, k)] = i;
	c->nextents++;
	return i;
}

/* ---- members ---- */

int page_dups_new(const struct page_dups_rules *rules, struct page_dups **ret)
{
	struct page_dups *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->rules = *rules;
	c->limit = 1;
	c->extent_slots.freed = c->copy_slots.freed = NONE;
	*ret = c;
	return 0;
}

void page_dups_free(struct page_dups *c)
{
	if (!c)
		return;
	free(c->extents);
	free(c->copies);
	free(c->buckets);
	free(c->numbers);
	free(c->members);
	free(c->order);
	free(c);
}

/* Before memory has had its say: half the mounts. A limit that lets all of them have a copy goes on
 * doing so. */
static void follow_members(struct page_dups *c, size_t before)
{
	const uint32_t n = (uint32_t)c->nmembers;

	if (!c->is_adjusted)
		c->limit = n / 2;
	else if (c->limit >= before || c->limit > n)
		c->limit = n;
	if (!c->limit)
		c->limit = 1;
	c->quiet = 0;
}

int page_dups_join(struct page_dups *c, uint32_t mount, uint32_t wish)
{
	if (c->nmembers == c->members_max) {
		const size_t max = c->members_max ? c->members_max * 2 : 16;
		uint32_t *numbers = realloc(c->numbers, max * sizeof(*numbers));
		struct member *members = realloc(c->members, max * sizeof(*members));

		c->numbers = numbers ? numbers : c->numbers;
		c->members = members ? members : c->members;
		if (!numbers || !members)
			return -ENOMEM;
		c->members_max = max;
	}
	c->numbers[c->nmembers] = mount;
	c->members[c->nmembers++] = (struct member){ .wish = wish };
	follow_members(c, c->nmembers - 1);
	return 0;
}

static void drop_copies_of(struct page_dups *c, uint32_t at, uint32_t mount)
{
	struct extent *e = &c->extents[at];

	for (uint32_t *link = &e->first; *link != NONE;) {
		const uint32_t i = *link;

		if (c->copies[i].mount != mount) {
			link = &c->copies[i].next;
			continue;
		}
		*link = c->copies[i].next;
		set_held(c, e, &c->copies[i], false);
		free_copy(c, i);
	}
	if (e->first == NONE)
		free_extent(c, at);
}

void page_dups_leave(struct page_dups *c, uint32_t mount)
{
	struct member *m = member_of(c, mount);
	size_t at;

	if (!m)
		return;
	for (uint32_t i = 0; i < c->extent_slots.end && m->ncopies; i++)
		if (c->extents[i].first != NONE)
			drop_copies_of(c, i, mount);
	at = (size_t)(m - c->members);
	c->nmembers--;
	memmove(&c->members[at], &c->members[at + 1], (c->nmembers - at) * sizeof(*c->members));
	memmove(&c->numbers[at], &c->numbers[at + 1], (c->nmembers - at) * sizeof(*c->numbers));
	follow_members(c, c->nmembers + 1);
	INVARIANTS(page_dups_check_invariants(c, NULL));
}

size_t page_dups_mounts(const struct page_dups *c, const uint32_t **ret)
{
	*ret = c->numbers;
	return c->nmembers;
}

/* ---- sent extents ---- */

/* The copy of this mount, taken out of its extent's list; NONE. */
static uint32_t unlink_copy(struct page_dups *c, struct extent *e, uint32_t mount)
{
	for (uint32_t *link = &e->first; *link != NONE; link = &c->copies[*link].next)
		if (c->copies[*link].mount == mount) {
			const uint32_t i = *link;

			*link = c->copies[i].next;
			return i;
		}
	return NONE;
}

static uint32_t new_copy(struct page_dups *c, struct member *m, uint32_t mount)
{
	uint32_t i = take_place(c, (void **)&c->copies, sizeof(*c->copies), &c->copy_slots,
				offsetof(struct copy, next));

	if (i == NONE)
		return NONE;
	c->copies[i] = (struct copy){ .mount = mount };
	c->ncopies++;
	m->ncopies++;
	return i;
}

static uint32_t spare_ms(const struct page_dups *c, unsigned refaults)
{
	uint64_t ms;

	if (!refaults)
		return c->rules.rest_ms;
	ms = (uint64_t)c->rules.spare_ms
	     << (refaults - 1 < DOUBLINGS_MAX ? refaults - 1 : DOUBLINGS_MAX);
	return ms < c->rules.spare_max_ms ? (uint32_t)ms : c->rules.spare_max_ms;
}

/* A ghost is sent again: too soon? */
static bool is_refault(struct page_dups *c, struct copy *p, uint32_t now_ms)
{
	if (now_ms - p->at_ms > c->rules.refault_ms) {
		p->refaults /= 2;
		return false;
	}
	p->refaults += p->refaults < UINT16_MAX;
	c->refaults++;
	return true;
}

int page_dups_note(struct page_dups *c, const struct page_dups_sent *s, uint32_t now_ms)
{
	struct member *m = member_of(c, s->mount);
	bool is_again = false;
	struct extent *e;
	struct copy *p;
	uint32_t at, i;

	if (!m)
		return 0;
	if (c->nextents >= c->rules.max || c->ncopies >= c->rules.max)
		make_room(c);
	at = find(c, &s->key);
	i = at == NONE ? NONE : unlink_copy(c, &c->extents[at], s->mount);
	if (i == NONE) {
		i = new_copy(c, m, s->mount);
		if (i == NONE)
			return -ENOMEM;
	} else if (!c->copies[i].is_held) {
		is_again = is_refault(c, &c->copies[i], now_ms);
	}
	if (at == NONE)
		at = new_extent(c, &s->key);
	if (at == NONE) {
		free_copy(c, i);
		return -ENOMEM;
	}
	e = &c->extents[at];
	p = &c->copies[i];
	p->next = e->first;
	e->first = i;
	p->node = s->node;
	p->reader = s->reader;
	p->at_ms = now_ms;
	p->until_ms = now_ms + spare_ms(c, p->refaults);
	c->extra_blk -= extra_of(e);
	e->nblk = MAX(s->nblk, e->nblk);
	c->extra_blk += extra_of(e);
	set_held(c, e, p, true);
	c->quiet = 0;
	INVARIANTS(page_dups_check_invariants(c, &s->key));
	return is_again;
}

/* ---- which have to go ---- */

bool page_dups_adjust(struct page_dups *c, unsigned used_percent)
{
	const uint32_t n = c->nmembers ? (uint32_t)c->nmembers : 1, before = c->limit;

	c->is_adjusted = true;
	if (used_percent < c->rules.low_percent)
		c->limit = c->limit > n / 2 ? n : c->limit * 2;
	else if (used_percent > c->rules.high_percent)
		c->limit = c->limit > 1 ? c->limit / 2 : 1;
	if (c->limit < before)
		c->quiet = 0;
	return c->limit < before;
}

static uint32_t limit_of(const struct page_dups *c, const struct copy *p)
{
	const struct member *m = member_of(c, p->mount);

	return !m || m->wish == PAGE_DUPS_AUTO ? c->limit : m->wish;
}

/* The cold before the hot, then the oldest. */
static int compare(const void *a, const void *b, void *copies)
{
	const struct copy *all = copies, *x = &all[*(const uint32_t *)a],
			  *y = &all[*(const uint32_t *)b];

	if (!x->refaults != !y->refaults)
		return x->refaults ? 1 : -1;
	if (x->at_ms != y->at_ms)
		return is_before(x->at_ms, y->at_ms) ? -1 : 1;
	return 0;
}

/* How many copies of e are held, in the order in which they have to go; 0 without memory. */
static size_t sort_copies(struct page_dups *c, const struct extent *e)
{
	size_t n = 0;

	if (array_reserve(&c->order, &c->order_max, e->nheld) < 0)
		return 0;
	for (uint32_t i = e->first; i != NONE; i = c->copies[i].next)
		if (c->copies[i].is_held)
			c->order[n++] = i;
	qsort_r(c->order, n, sizeof(*c->order), compare, c->copies);
	return n;
}

static void wait_until(struct page_dups *c, uint32_t ms)
{
	if (!c->has_next || is_before(ms, c->next_ms))
		c->next_ms = ms;
	c->has_next = true;
}

/* False: there is no room for the list of copies to drop. */
static bool scan_extent(struct page_dups *c, struct extent *e, uint32_t now_ms,
			struct page_dups_victim *ret, size_t max, size_t *n)
{
	const size_t held = e->nheld > 1 ? sort_copies(c, e) : 0;

	for (size_t k = 0; k < held; k++) {
		struct copy *p = &c->copies[c->order[k]];

		if (e->nheld <= limit_of(c, p))
			continue;
		if (is_before(now_ms, p->until_ms)) {
			wait_until(c, p->until_ms);
			continue;
		}
		if (*n == max)
			return false;
		ret[(*n)++] = (struct page_dups_victim){ e->key, p->mount, p->node, p->reader };
		set_held(c, e, p, false);
		p->at_ms = now_ms;
		c->evictions++;
	}
	return true;
}

size_t page_dups_scan(struct page_dups *c, uint32_t now_ms, struct page_dups_victim *ret,
		      size_t max)
{
	size_t n = 0;

	/* Spared copies may go now. */
	if (c->quiet >= c->extent_slots.end && c->has_next && !is_before(now_ms, c->next_ms))
		c->quiet = 0;
	for (uint32_t k = 0; k < c->rules.scan && c->quiet < c->extent_slots.end; k++) {
		struct extent *e;

		if (!c->quiet)
			c->has_next = false;
		if (c->hand >= c->extent_slots.end)
			c->hand = 0;
		e = &c->extents[c->hand];
		if (e->first != NONE && !scan_extent(c, e, now_ms, ret, max, &n)) {
			c->quiet = 0;
			break;
		}
		c->hand++;
		c->quiet++;
	}
	INVARIANTS(page_dups_check_invariants(c, n ? &ret[n - 1].key : NULL));
	return n;
}

void page_dups_kept(struct page_dups *c, const struct page_dups_victim *v, uint32_t now_ms,
		    uint32_t for_ms)
{
	const uint32_t at = find(c, &v->key);

	for (uint32_t i = at == NONE ? NONE : c->extents[at].first; i != NONE;
	     i = c->copies[i].next) {
		struct copy *p = &c->copies[i];

		if (p->mount != v->mount || p->is_held)
			continue;
		set_held(c, &c->extents[at], p, true);
		p->until_ms = now_ms + for_ms;
		c->evictions--;
		/* Another copy may go in its place. */
		c->quiet = 0;
	}
	INVARIANTS(page_dups_check_invariants(c, &v->key));
}

uint32_t page_dups_pause_ms(const struct page_dups *c, uint32_t now_ms)
{
	if (c->quiet < c->extent_slots.end)
		return 0;
	if (!c->has_next)
		return PAGE_DUPS_FOREVER;
	return is_before(now_ms, c->next_ms) ? c->next_ms - now_ms : 0;
}

bool page_dups_heeds_memory(const struct page_dups *c)
{
	bool is_any = false;

	for (size_t i = 0; i < c->nmembers && !is_any; i++)
		is_any = c->members[i].wish == PAGE_DUPS_AUTO;
	return is_any && c->extra_blk;
}

void page_dups_usage(const struct page_dups *c, struct page_dups_usage *ret)
{
	*ret = (struct page_dups_usage){
		.limit = c->limit,
		.mounts = c->nmembers,
		.extents = c->nextents,
		.copies = c->nheld,
		.extra_bytes = c->extra_blk * BLK_BYTES,
		.evictions = c->evictions,
		.refaults = c->refaults,
		.forgotten = c->forgotten,
	};
}

size_t page_dups_bytes(const struct page_dups *c)
{
	return sizeof(*c) + c->extent_slots.n * sizeof(*c->extents) +
	       c->copy_slots.n * sizeof(*c->copies) + c->nbuckets * sizeof(*c->buckets) +
	       c->members_max * (sizeof(*c->members) + sizeof(*c->numbers)) +
	       c->order_max * sizeof(*c->order);
}

/* ---- invariants ---- */

/* The sums over the extents that were looked at. */
struct tally {
	uint64_t nheld, extra_blk;
	uint32_t nextents, ncopies;
};

static const char *extent_check(const struct page_dups *c, uint32_t at, struct tally *sum)
{
	const struct extent *e = &c->extents[at];
	uint32_t ncopies = 0, nheld = 0;

	if (find(c, &e->key) != at)
		return "page_dups: an extent is in the bucket of its key, once";
	for (uint32_t i = e->first; i != NONE; i = c->copies[i].next) {
		if (!member_of(c, c->copies[i].mount))
			return "page_dups: a copy is of a mount that takes part";
		if (++ncopies > c->nmembers)
			return "page_dups: an extent has one copy of a mount";
		nheld += c->copies[i].is_held;
	}
	if (nheld != e->nheld)
		return "page_dups: nheld of an extent is the number of its copies that are held";
	sum->nextents++;
	sum->ncopies += ncopies;
	sum->nheld += nheld;
	sum->extra_blk += extra_of(e);
	return NULL;
}

static const char *all_check(const struct page_dups *c)
{
	const char *broken = NULL;
	struct tally sum = { 0 };
	uint64_t of_members = 0;

	for (uint32_t i = 0; i < c->extent_slots.end && !broken; i++)
		if (c->extents[i].first != NONE)
			broken = extent_check(c, i, &sum);
	for (size_t k = 0; k < c->nmembers; k++)
		of_members += c->members[k].ncopies;
	if (broken)
		return broken;
	return sum.nextents != c->nextents || sum.ncopies != c->ncopies || sum.nheld != c->nheld ||
			       of_members != c->ncopies
		       ? "page_dups: extents and copies are all counted"
	       : sum.extra_blk != c->extra_blk ? "page_dups: extra_blk is what all extents have"
					       : NULL;
}

const char *page_dups_check_invariants(const struct page_dups *c, const struct page_dups_key *key)
{
	const uint32_t at = key ? find(c, key) : NONE;
	struct tally sum = { 0 };

	if (!c->limit || c->quiet > c->extent_slots.end)
		return "page_dups: one copy may stay, and quiet extents are extents";
	if (c->extent_slots.end <= INVARIANTS_MAX)
		return all_check(c);
	return at == NONE ? NULL : extent_check(c, at, &sum);
}
