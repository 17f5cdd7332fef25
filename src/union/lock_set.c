// SPDX-License-Identifier: Apache-2.0
/* Invariants:
 * 1. Records of one owner in one object and kind do not overlap; those of one type do not touch
 *    either.
 * 2. If two records of an object and kind overlap and one is exclusive, they have one owner. */
#include "lock_set.h"

#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"

#include <errno.h>
#include <stdlib.h>

#define NO_RECORD 0 /* links hold an index plus one */

int lock_set_init(struct lock_set *s, struct lock_table *tab)
{
	*s = (struct lock_set){
		.tab = tab,
		.next = calloc(LOCK_TABLE_MAX + LOCK_TABLE_CHANGE, sizeof(*s->next)),
		.is_closing = calloc(LOCK_TABLE_MAX + LOCK_TABLE_CHANGE, sizeof(*s->is_closing)),
	};
	return s->next && s->is_closing ? 0 : -ENOMEM;
}

static void drop_object(struct hlink *h, void *arg)
{
	(void)arg;
	free(container_of(h, struct lock_object, link));
}

void lock_set_release(struct lock_set *s)
{
	htab_drain(&s->objects, drop_object, NULL);
	htab_release(&s->objects);
	lock_table_free(s->tab);
	free(s->next);
	free(s->is_closing);
}

/* ---- objects and their records ---- */

static uint64_t hash_of(uint64_t inode)
{
	return hash_key(&inode, sizeof(inode), 0);
}

struct lock_object *lock_set_find(const struct lock_set *s, uint64_t inode)
{
	for (struct hlink *h = htab_first(&s->objects, hash_of(inode)); h; h = htab_next(h))
		if (container_of(h, struct lock_object, link)->inode == inode)
			return container_of(h, struct lock_object, link);
	return NULL;
}

struct lock_object *lock_set_need(struct lock_set *s, uint64_t inode)
{
	struct lock_object *o = lock_set_find(s, inode);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->inode = inode;
	list_init(&o->waiters);
	if (htab_insert(&s->objects, &o->link, hash_of(inode)) < 0) {
		free(o);
		return NULL;
	}
	return o;
}

void lock_set_drop_idle(struct lock_set *s, struct lock_object *o)
{
	if (o->first[LOCKS_RECORD] || o->first[LOCKS_FLOCK] || !list_is_empty(&o->waiters))
		return;
	htab_remove(&s->objects, &o->link);
	free(o);
}

static const struct lock_record *at(const struct lock_set *s, uint32_t link)
{
	return lock_table_at(s->tab, link - 1);
}

static uint32_t next_of(const struct lock_set *s, uint32_t link)
{
	return s->next[link - 1];
}

static void insert(struct lock_set *s, struct lock_object *o, uint32_t index)
{
	const struct lock_record *r = lock_table_at(s->tab, index);
	uint32_t *to = &o->first[r->kind];

	while (*to != NO_RECORD && at(s, *to)->start < r->start)
		to = &s->next[*to - 1];
	s->next[index] = *to;
	s->is_closing[index] = false;
	*to = index + 1;
	INVARIANTS(lock_set_check_invariants(s, o, NULL));
}

int lock_set_enter(struct lock_set *s, uint64_t inode, uint32_t index)
{
	struct lock_object *o = lock_set_need(s, inode);

	if (!o)
		return -ENOMEM;
	insert(s, o, index);
	return 0;
}

static uint64_t node_of(const struct lock_set *s, const struct lock_object *o)
{
	for (unsigned kind = 0; kind < LOCK_SET_KINDS; kind++)
		if (o->first[kind] != NO_RECORD)
			return at(s, o->first[kind])->node;
	return 0;
}

static void chain_object(struct hlink *h, void *arg)
{
	struct hlink **first = arg;

	h->next = *first;
	*first = h;
}

/* fn gets node id 0 for an object without a record. */
int lock_set_renumber(struct lock_set *s,
		      uint64_t (*fn)(const struct lock_object *o, uint64_t node, void *arg),
		      void *arg)
{
	struct hlink *first = NULL, *next;
	struct htab fresh = { 0 };

	htab_reserve(&fresh, s->objects.count);
	if (!fresh.nbuckets)
		return -ENOMEM;
	htab_drain(&s->objects, chain_object, &first);
	s->objects = fresh;
	for (struct hlink *h = first; h; h = next) {
		struct lock_object *o = container_of(h, struct lock_object, link);

		next = h->next;
		o->inode = fn(o, node_of(s, o), arg);
		/* With buckets reserved, this needs no memory. */
		(void)htab_insert(&s->objects, &o->link, hash_of(o->inode));
	}
	return 0;
}

static void bring(struct lock_set *s, struct lock_object *o, const struct lock_record *r)
{
	insert(s, o, lock_table_bring(s->tab, r));
}

/* Take away the records that fn selects; returns their number. */
static uint32_t take_away(struct lock_set *s, struct lock_object *o, unsigned kind,
			  bool (*fn)(const struct lock_record *r, const void *arg), const void *arg)
{
	uint32_t n = 0;

	for (uint32_t *to = &o->first[kind]; *to != NO_RECORD;) {
		const uint32_t link = *to;

		if (!fn(at(s, link), arg)) {
			to = &s->next[link - 1];
			continue;
		}
		*to = s->next[link - 1];
		lock_table_take_away(s->tab, link - 1);
		n++;
	}
	return n;
}

static bool overlaps(const struct lock_record *r, const struct lock_request *q)
{
	return r->start <= q->end && r->end >= q->start;
}

static bool is_in_the_way(const struct lock_record *r, const struct lock_request *q)
{
	return r->owner != q->owner && (r->type == LOCKS_EXCLUSIVE || q->type == LOCKS_EXCLUSIVE) &&
	       overlaps(r, q);
}

/* The first conflicting link from this one on, or NO_RECORD. */
static uint32_t obstacle_from(const struct lock_set *s, uint32_t link, const struct lock_request *q)
{
	while (link != NO_RECORD && !is_in_the_way(at(s, link), q))
		link = next_of(s, link);
	return link;
}

static uint32_t obstacle(const struct lock_set *s, const struct lock_object *o,
			 const struct lock_request *q)
{
	return q->type == LOCKS_NONE ? NO_RECORD : obstacle_from(s, o->first[q->kind], q);
}

const struct lock_record *lock_set_obstacle(const struct lock_set *s, const struct lock_object *o,
					    const struct lock_request *q)
{
	uint32_t link = obstacle(s, o, q);

	return link == NO_RECORD ? NULL : at(s, link);
}

const struct lock_record *lock_set_next_obstacle(const struct lock_set *s,
						 const struct lock_record *r,
						 const struct lock_request *q)
{
	uint32_t link = obstacle_from(s, s->next[r - lock_table_at(s->tab, 0)], q);

	return link == NO_RECORD ? NULL : at(s, link);
}

bool lock_set_all_are_closing(const struct lock_set *s, const struct lock_object *o,
			      const struct lock_request *q)
{
	uint32_t link = obstacle(s, o, q);

	while (link != NO_RECORD && s->is_closing[link - 1])
		link = obstacle_from(s, next_of(s, link), q);
	return link == NO_RECORD;
}

/* ---- changes ---- */

static struct lock_record record_of(const struct lock_request *q)
{
	return (struct lock_record){ .node = q->node,
				     .owner = q->owner,
				     .handle = q->handle,
				     .start = q->start,
				     .end = q->end,
				     .pid = q->pid,
				     .kind = (uint8_t)q->kind,
				     .type = (uint8_t)q->type };
}

static bool is_of_type(const struct lock_record *r, const struct lock_request *q)
{
	return r->owner == q->owner && r->type == q->type;
}

/* Records of one type are merged also if they only touch. */
static bool is_changed_by(const struct lock_record *r, const void *arg)
{
	const struct lock_request *q = arg;

	if (r->owner != q->owner)
		return false;
	return overlaps(r, q) ||
	       (is_of_type(r, q) && (r->end + 1 == q->start || q->end + 1 == r->start));
}

/* The records that replace the owner's present ones in the range. */
struct change {
	struct lock_record now[LOCK_TABLE_CHANGE];
	unsigned n_now, n_before;
	bool is_there; /* the owner holds all of it already */
};

static void keep_rest(struct change *c, const struct lock_record *r, uint64_t start, uint64_t end)
{
	/* More are left only by a server that damaged its table; the last place is for the new one.
	 */
	if (c->n_now == LOCK_TABLE_CHANGE - 1)
		return;
	c->now[c->n_now] = *r;
	c->now[c->n_now].start = start;
	c->now[c->n_now++].end = end;
}

/* By invariant 1 at most one record extends beyond each end of the range. */
static void plan(const struct lock_set *s, const struct lock_object *o,
		 const struct lock_request *q, struct change *c)
{
	struct lock_record own = record_of(q);

	*c = (struct change){ .n_now = 0 };
	for (uint32_t link = o->first[q->kind]; link != NO_RECORD; link = next_of(s, link)) {
		const struct lock_record *r = at(s, link);

		if (!is_changed_by(r, q))
			continue;
		c->n_before++;
		if (is_of_type(r, q)) {
			c->is_there |= r->start <= q->start && r->end >= q->end;
			own.start = MIN(r->start, own.start);
			own.end = MAX(r->end, own.end);
			continue;
		}
		if (r->start < q->start)
			keep_rest(c, r, r->start, q->start - 1);
		if (r->end > q->end)
			keep_rest(c, r, q->end + 1, r->end);
	}
	if (q->type != LOCKS_NONE)
		c->now[c->n_now++] = own;
}

static int change_record(struct lock_set *s, struct lock_object *o, const struct lock_request *q)
{
	struct change c;

	plan(s, o, q, &c);
	if (c.is_there || (c.n_before == 0 && c.n_now == 0))
		return 0;
	if (!lock_table_has_room(s->tab, c.n_before, c.n_now))
		return -ENOLCK;
	take_away(s, o, q->kind, is_changed_by, q);
	for (unsigned k = 0; k < c.n_now; k++)
		bring(s, o, &c.now[k]);
	lock_table_commit(s->tab);
	return c.n_before > 0;
}

static bool is_owned_by(const struct lock_record *r, const void *arg)
{
	return r->owner == *(const uint64_t *)arg;
}

/* First give up the owner's lock of another type, also if it must then wait. */
static int change_flock(struct lock_set *s, struct lock_object *o, const struct lock_request *q)
{
	const struct lock_record own = record_of(q);
	uint32_t n_before;
	int r;

	for (uint32_t link = o->first[q->kind]; link != NO_RECORD; link = next_of(s, link))
		if (is_of_type(at(s, link), q))
			return 0;
	n_before = take_away(s, o, q->kind, is_owned_by, &q->owner);
	r = n_before > 0;
	if (obstacle(s, o, q) != NO_RECORD)
		r = -EAGAIN;
	else if (q->type != LOCKS_NONE && !lock_table_has_room(s->tab, n_before, 1))
		r = -ENOLCK;
	else if (q->type != LOCKS_NONE)
		bring(s, o, &own);
	if (n_before || r == 0)
		lock_table_commit(s->tab);
	return r;
}

int lock_set_change(struct lock_set *s, struct lock_object *o, const struct lock_request *q)
{
	int r;

	if (q->kind == LOCKS_FLOCK)
		r = change_flock(s, o, q);
	else
		r = obstacle(s, o, q) != NO_RECORD ? -EAGAIN : change_record(s, o, q);
	INVARIANTS(lock_set_check_invariants(s, o, r < 0 ? NULL : q));
	return r;
}

/* ---- changes without a request ---- */

static bool is_by_handle(const struct lock_record *r, const void *arg)
{
	return r->handle == *(const uint64_t *)arg;
}

static bool is_any(const struct lock_record *r, const void *arg)
{
	(void)r;
	(void)arg;
	return true;
}

void lock_set_note_closing(struct lock_set *s, struct lock_object *o, uint64_t handle)
{
	for (unsigned kind = 0; kind < LOCK_SET_KINDS; kind++)
		for (uint32_t link = o->first[kind]; link != NO_RECORD; link = next_of(s, link))
			if (at(s, link)->handle == handle)
				s->is_closing[link - 1] = true;
}

uint32_t lock_set_drop_owner(struct lock_set *s, struct lock_object *o, uint64_t owner)
{
	return take_away(s, o, LOCKS_RECORD, is_owned_by, &owner);
}

uint32_t lock_set_drop_handle(struct lock_set *s, struct lock_object *o, uint64_t handle)
{
	uint32_t n = take_away(s, o, LOCKS_RECORD, is_by_handle, &handle);

	return n + take_away(s, o, LOCKS_FLOCK, is_by_handle, &handle);
}

void lock_set_drop_all(struct lock_set *s, struct lock_object *o)
{
	for (unsigned kind = 0; kind < LOCK_SET_KINDS; kind++)
		take_away(s, o, kind, is_any, NULL);
}

/* ---- invariants ---- */

static const char *chain_check(const struct lock_set *s, const struct lock_object *o, unsigned kind)
{
	uint32_t link = o->first[kind];
	uint64_t start = 0;

	for (unsigned k = 0; k < INVARIANTS_MAX && link != NO_RECORD; k++) {
		const struct lock_record *r = at(s, link);

		if (r->kind != kind || !r->birth)
			return "lock_set: an object has records of its kind that are held";
		if (r->start < start)
			return "lock_set: records stand in the order of their starts";
		start = r->start;
		link = next_of(s, link);
	}
	return NULL;
}

/* The records may come from a server that crashed, so that invariants 1 and 2 hold for the range of
 * a request alone. */
static const char *granted_check(const struct lock_set *s, const struct lock_object *o,
				 const struct lock_request *q)
{
	uint32_t link = o->first[q->kind];
	bool has_it = q->type == LOCKS_NONE;
	unsigned k = 0;

	if (obstacle(s, o, q) != NO_RECORD)
		return "lock_set: nothing is in the way of a lock that was given";
	for (; k < INVARIANTS_MAX && link != NO_RECORD; k++, link = next_of(s, link)) {
		const struct lock_record *r = at(s, link);

		if (r->owner != q->owner || !overlaps(r, q))
			continue;
		if (q->type == LOCKS_NONE)
			return "lock_set: nothing is left of a lock that was given up";
		has_it |= r->type == q->type && r->start <= q->start && r->end >= q->end;
	}
	return has_it || k == INVARIANTS_MAX ? NULL : "lock_set: a lock that was given is there";
}

const char *lock_set_check_invariants(const struct lock_set *s, const struct lock_object *o,
				      const struct lock_request *q)
{
	const char *broken = NULL;

	for (unsigned kind = 0; kind < LOCK_SET_KINDS && !broken; kind++)
		broken = chain_check(s, o, kind);
	return broken || !q ? broken : granted_check(s, o, q);
}
