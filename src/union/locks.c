// SPDX-License-Identifier: Apache-2.0
/* A file that has a lock, or a waiter for one, is an object: its records by kind, in the
 * order of their starts, and its waiters in the order in which they came.
 *
 * 1. Records of one owner in one object and kind do not overlap; those of one type do not touch
 *    either.
 * 2. No two records of an object and kind that overlap have different owners and one that is
 *    exclusive.
 * 3. A record is in the way of each waiter: whenever one is taken away, or becomes less, the
 *    waiters of its object are looked at (grant_locked) before the mutex is let go.
 *
 * A waiter is prepared, then waits in an object, then is told: taken out under the mutex, called
 * back without it. */
#include "veneer/union/locks.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/minmax.h"

#include <string.h>

#define KINDS	   2
#define NO_RECORD  0 /* in links: an index and one */
#define SEARCH_MAX 1000000u /* records looked at for a deadlock */

struct object {
	struct hlink link;
	uint64_t inode;
	uint32_t first[KINDS];
	struct list_link waiters;
};

struct waiter {
	struct list_link all;
	struct list_link link; /* of the object, or of those to be told */
	struct hlink by_owner; /* in an object, and of LOCKS_RECORD */
	struct object *object; /* NULL: prepared */
	struct lock_request request;
	uint64_t number;
	uint32_t search; /* that has seen it */
	bool is_cancelled; /* before it waited */
	int result;
	locks_told told;
	void *arg;
};

struct locks {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct lock_table *tab;
	uint32_t *next; /* of the object's records, by index */
	bool *is_closing; /* a descriptor of its handle was closed since */
	struct htab objects, by_owner;
	struct list_link waiters; /* the newest first */
	uint32_t n_waiters, searches;
	uint64_t numbers;
	int ended; /* the answer to a request that would wait; 0: it may wait */
};

/* ---- objects and their records ---- */

static uint64_t hash_of(uint64_t number)
{
	return hash_key(&number, sizeof(number), 0);
}

static struct object *find_locked(const struct locks *l, uint64_t inode)
{
	for (struct hlink *h = htab_first(&l->objects, hash_of(inode)); h; h = htab_next(h))
		if (container_of(h, struct object, link)->inode == inode)
			return container_of(h, struct object, link);
	return NULL;
}

static struct object *need_locked(struct locks *l, uint64_t inode)
{
	struct object *o = find_locked(l, inode);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->inode = inode;
	list_init(&o->waiters);
	if (htab_insert(&l->objects, &o->link, hash_of(inode)) < 0) {
		free(o);
		return NULL;
	}
	return o;
}

static void drop_idle_locked(struct locks *l, struct object *o)
{
	if (o->first[LOCKS_RECORD] || o->first[LOCKS_FLOCK] || !list_is_empty(&o->waiters))
		return;
	htab_remove(&l->objects, &o->link);
	free(o);
}

static const struct lock_record *at(const struct locks *l, uint32_t link)
{
	return lock_table_at(l->tab, link - 1);
}

static uint32_t next_of(const struct locks *l, uint32_t link)
{
	return l->next[link - 1];
}

static void insert_locked(struct locks *l, struct object *o, uint32_t index)
{
	const struct lock_record *r = lock_table_at(l->tab, index);
	uint32_t *to = &o->first[r->kind];

	while (*to != NO_RECORD && at(l, *to)->start < r->start)
		to = &l->next[*to - 1];
	l->next[index] = *to;
	l->is_closing[index] = false;
	*to = index + 1;
}

static void bring_locked(struct locks *l, struct object *o, const struct lock_record *r)
{
	insert_locked(l, o, lock_table_bring(l->tab, r));
}

/* Take away what fn says; how many that were. */
static uint32_t take_away_locked(struct locks *l, struct object *o, unsigned kind,
				 bool (*fn)(const struct lock_record *r, const void *arg),
				 const void *arg)
{
	uint32_t n = 0;

	for (uint32_t *to = &o->first[kind]; *to != NO_RECORD;) {
		const uint32_t link = *to;

		if (!fn(at(l, link), arg)) {
			to = &l->next[link - 1];
			continue;
		}
		*to = l->next[link - 1];
		lock_table_take_away(l->tab, link - 1);
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

/* A link, from this one on; NO_RECORD. */
static uint32_t obstacle_from(const struct locks *l, uint32_t link, const struct lock_request *q)
{
	while (link != NO_RECORD && !is_in_the_way(at(l, link), q))
		link = next_of(l, link);
	return link;
}

static uint32_t obstacle(const struct locks *l, const struct object *o,
			 const struct lock_request *q)
{
	return q->type == LOCKS_NONE ? NO_RECORD : obstacle_from(l, o->first[q->kind], q);
}

static bool all_are_closing(const struct locks *l, const struct object *o,
			    const struct lock_request *q)
{
	uint32_t link = obstacle(l, o, q);

	while (link != NO_RECORD && l->is_closing[link - 1])
		link = obstacle_from(l, next_of(l, link), q);
	return link == NO_RECORD;
}

/* ---- changes: 0; 1: and something was given up; -errno ---- */

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

/* Of the same type they become one also when they only touch. */
static bool is_changed_by(const struct lock_record *r, const void *arg)
{
	const struct lock_request *q = arg;

	if (r->owner != q->owner)
		return false;
	return overlaps(r, q) ||
	       (is_of_type(r, q) && (r->end + 1 == q->start || q->end + 1 == r->start));
}

/* The records that replace what the owner has there. */
struct change {
	struct lock_record now[LOCK_TABLE_CHANGE];
	unsigned n_now, n_before;
	bool is_there; /* all of it, already */
};

static void keep_rest(struct change *c, const struct lock_record *r, uint64_t start, uint64_t end)
{
	c->now[c->n_now] = *r;
	c->now[c->n_now].start = start;
	c->now[c->n_now++].end = end;
}

/* By invariant 1 one record at most reaches beyond each end of the range. */
static void plan(const struct locks *l, const struct object *o, const struct lock_request *q,
		 struct change *c)
{
	struct lock_record own = record_of(q);

	*c = (struct change){ .n_now = 0 };
	for (uint32_t link = o->first[q->kind]; link != NO_RECORD; link = next_of(l, link)) {
		const struct lock_record *r = at(l, link);

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

static int change_record_locked(struct locks *l, struct object *o, const struct lock_request *q)
{
	struct change c;

	plan(l, o, q, &c);
	if (c.is_there || (c.n_before == 0 && c.n_now == 0))
		return 0;
	if (!lock_table_has_room(l->tab, c.n_before, c.n_now))
		return -ENOLCK;
	take_away_locked(l, o, q->kind, is_changed_by, q);
	for (unsigned k = 0; k < c.n_now; k++)
		bring_locked(l, o, &c.now[k]);
	lock_table_commit(l->tab);
	return c.n_before > 0;
}

static bool is_owned_by(const struct lock_record *r, const void *arg)
{
	return r->owner == *(const uint64_t *)arg;
}

/* Give up first what the owner has in another way, also when it then has to wait. */
static int change_flock_locked(struct locks *l, struct object *o, const struct lock_request *q)
{
	const struct lock_record own = record_of(q);
	uint32_t n_before;
	int r;

	for (uint32_t link = o->first[q->kind]; link != NO_RECORD; link = next_of(l, link))
		if (is_of_type(at(l, link), q))
			return 0;
	n_before = take_away_locked(l, o, q->kind, is_owned_by, &q->owner);
	r = n_before > 0;
	if (obstacle(l, o, q) != NO_RECORD)
		r = -EAGAIN;
	else if (q->type != LOCKS_NONE && !lock_table_has_room(l->tab, n_before, 1))
		r = -ENOLCK;
	else if (q->type != LOCKS_NONE)
		bring_locked(l, o, &own);
	if (n_before || r == 0)
		lock_table_commit(l->tab);
	return r;
}

static int change_locked(struct locks *l, struct object *o, const struct lock_request *q)
{
	if (q->kind == LOCKS_FLOCK)
		return change_flock_locked(l, o, q);
	return obstacle(l, o, q) != NO_RECORD ? -EAGAIN : change_record_locked(l, o, q);
}

/* ---- waiters ---- */

/* End the wait. */
static void move_to_told_locked(struct locks *l, struct waiter *w, int result,
				struct list_link *told)
{
	if (w->request.kind == LOCKS_RECORD)
		htab_remove(&l->by_owner, &w->by_owner);
	list_del(&w->link);
	list_del(&w->all);
	l->n_waiters--;
	w->result = result;
	w->object = NULL;
	list_add_tail(told, &w->link);
}

static struct waiter *waiter_of(struct list_link *link)
{
	return container_of(link, struct waiter, link);
}

/* Something of the object was given up. A waiter that is served may give up something, too. */
static void grant_locked(struct locks *l, struct object *o, struct list_link *told)
{
	bool is_more = true;

	while (is_more) {
		is_more = false;
		for (struct list_link *k = o->waiters.next, *next; k != &o->waiters; k = next) {
			struct waiter *w = waiter_of(k);
			int r;

			next = k->next;
			if (obstacle(l, o, &w->request) != NO_RECORD)
				continue;
			r = change_locked(l, o, &w->request);
			is_more |= r > 0;
			move_to_told_locked(l, w, r < 0 ? r : 0, told);
		}
	}
}

/* Without the mutex. */
static void tell(struct list_link *told)
{
	while (!list_is_empty(told)) {
		struct waiter *w = waiter_of(told->next);

		list_del(&w->link);
		w->told(w->arg, w->result);
		free(w);
	}
}

/* Does one of those in the way of q wait, by however many others, for its owner? The waiters that
 * are to be looked at are linked by those that were seen. */
struct search {
	struct waiter **queue;
	uint32_t n, looked;
	uint64_t owner;
	bool is_found;
};

static void follow_locked(struct locks *l, const struct object *o, const struct lock_request *q,
			  struct search *s)
{
	for (uint32_t link = obstacle(l, o, q);
	     link != NO_RECORD && !s->is_found && s->looked < SEARCH_MAX;
	     link = obstacle_from(l, next_of(l, link), q)) {
		const uint64_t owner = at(l, link)->owner;

		s->looked++;
		s->is_found = owner == s->owner;
		for (struct hlink *h = htab_first(&l->by_owner, hash_of(owner)); h;
		     h = htab_next(h)) {
			struct waiter *w = container_of(h, struct waiter, by_owner);

			if (w->request.owner != owner || w->search == l->searches)
				continue;
			w->search = l->searches;
			s->queue[s->n++] = w;
		}
	}
}

/* Without memory no deadlock is found. */
static bool is_deadlock_locked(struct locks *l, const struct object *o,
			       const struct lock_request *q)
{
	struct search s = { .owner = q->owner };

	if (q->kind != LOCKS_RECORD || l->by_owner.count == 0)
		return false;
	s.queue = calloc(l->by_owner.count, sizeof(struct waiter *));
	if (!s.queue)
		return false;
	l->searches++;
	follow_locked(l, o, q, &s);
	for (uint32_t k = 0; k < s.n && !s.is_found; k++)
		follow_locked(l, s.queue[k]->object, &s.queue[k]->request, &s);
	free(s.queue);
	return s.is_found;
}

static struct waiter *numbered_locked(struct locks *l, uint64_t number)
{
	for (struct list_link *k = l->waiters.next; k != &l->waiters; k = k->next)
		if (container_of(k, struct waiter, all)->number == number)
			return container_of(k, struct waiter, all);
	return NULL;
}

static int enlist_locked(struct locks *l, struct object *o, struct waiter *w,
			 const struct lock_request *q)
{
	w->request = *q;
	if (q->kind == LOCKS_RECORD &&
	    htab_insert(&l->by_owner, &w->by_owner, hash_of(q->owner)) < 0)
		return -ENOLCK;
	w->object = o;
	list_add_tail(&o->waiters, &w->link);
	return 1;
}

static void discard_locked(struct locks *l, struct waiter *w)
{
	list_del(&w->all);
	l->n_waiters--;
	free(w);
}

/* ---- requests ---- */

static bool is_sound(const struct lock_request *q)
{
	return q->kind <= LOCKS_FLOCK && q->type <= LOCKS_EXCLUSIVE && q->start <= q->end &&
	       q->end <= LOCKS_END;
}

int locks_set(struct locks *l, const struct lock_request *q, bool *ret_is_closing)
{
	struct list_link told;
	struct object *o;
	int r;

	*ret_is_closing = false;
	if (!is_sound(q))
		return -EINVAL;
	list_init(&told);
	pthread_mutex_lock(&l->lock);
	o = q->type == LOCKS_NONE ? find_locked(l, q->inode) : need_locked(l, q->inode);
	if (o)
		r = change_locked(l, o, q);
	else
		r = q->type == LOCKS_NONE ? 0 : -ENOLCK;
	if (r == -EAGAIN)
		*ret_is_closing = all_are_closing(l, o, q);
	if (o) {
		grant_locked(l, o, &told);
		drop_idle_locked(l, o);
	}
	pthread_mutex_unlock(&l->lock);
	tell(&told);
	return r < 0 ? r : 0;
}

int locks_prepare(struct locks *l, locks_told told, void *arg, uint64_t *ret_number)
{
	struct waiter *w;

	LOCK_SCOPE(&l->lock);
	w = l->n_waiters < LOCKS_WAITERS_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (!w)
		return -ENOLCK;
	w->told = told;
	w->arg = arg;
	w->number = *ret_number = ++l->numbers;
	list_add_head(&l->waiters, &w->all);
	l->n_waiters++;
	return 0;
}

static int wait_locked(struct locks *l, struct object *o, struct waiter *w,
		       const struct lock_request *q)
{
	int r;

	if (w->is_cancelled)
		return -EINTR;
	if (l->ended)
		return l->ended;
	r = change_locked(l, o, q);
	if (r != -EAGAIN)
		return r < 0 ? r : 0;
	if (is_deadlock_locked(l, o, q))
		return -EDEADLK;
	return enlist_locked(l, o, w, q);
}

int locks_wait(struct locks *l, uint64_t number, const struct lock_request *q)
{
	struct list_link told;
	struct waiter *w;
	struct object *o;
	int r = -ENOLCK;

	list_init(&told);
	pthread_mutex_lock(&l->lock);
	w = numbered_locked(l, number);
	if (!w || w->object || !is_sound(q)) {
		r = -EINVAL;
		o = NULL;
	} else {
		o = need_locked(l, q->inode);
	}
	if (o) {
		r = wait_locked(l, o, w, q);
		grant_locked(l, o, &told);
		drop_idle_locked(l, o);
	}
	if (r <= 0 && w && !w->object)
		discard_locked(l, w);
	pthread_mutex_unlock(&l->lock);
	tell(&told);
	return r;
}

void locks_cancel(struct locks *l, uint64_t number)
{
	struct list_link told;
	struct waiter *w;
	struct object *o;

	list_init(&told);
	pthread_mutex_lock(&l->lock);
	w = numbered_locked(l, number);
	o = w ? w->object : NULL;
	if (o) {
		move_to_told_locked(l, w, -EINTR, &told);
		drop_idle_locked(l, o);
	} else if (w) {
		w->is_cancelled = true;
	}
	pthread_mutex_unlock(&l->lock);
	tell(&told);
}

bool locks_test(struct locks *l, const struct lock_request *q, struct lock_record *ret)
{
	struct object *o;
	uint32_t link;

	LOCK_SCOPE(&l->lock);
	o = is_sound(q) ? find_locked(l, q->inode) : NULL;
	link = o ? obstacle(l, o, q) : NO_RECORD;
	if (link == NO_RECORD)
		return false;
	*ret = *at(l, link);
	return true;
}

/* ---- what goes by itself ---- */

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

/* How a file's records go: those that each says. */
struct release {
	bool (*goes[KINDS])(const struct lock_record *r, const void *arg);
	const uint64_t *of; /* owner, or handle */
	const uint64_t *closing; /* a handle, or NULL */
};

static void note_closing_locked(struct locks *l, struct object *o, uint64_t handle)
{
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (uint32_t link = o->first[kind]; link != NO_RECORD; link = next_of(l, link))
			if (at(l, link)->handle == handle)
				l->is_closing[link - 1] = true;
}

/* Most files that are closed have no lock: that costs a look into the table. */
static void release(struct locks *l, uint64_t inode, const struct release *how)
{
	struct list_link told;
	struct object *o;
	uint32_t n = 0;

	list_init(&told);
	pthread_mutex_lock(&l->lock);
	o = find_locked(l, inode);
	for (unsigned kind = 0; o && kind < KINDS; kind++)
		if (how->goes[kind])
			n += take_away_locked(l, o, kind, how->goes[kind], how->of);
	if (n)
		lock_table_commit(l->tab);
	if (o && how->closing)
		note_closing_locked(l, o, *how->closing);
	if (n)
		grant_locked(l, o, &told);
	if (o)
		drop_idle_locked(l, o);
	pthread_mutex_unlock(&l->lock);
	tell(&told);
}

void locks_release_owner(struct locks *l, uint64_t inode, uint64_t owner, uint64_t handle)
{
	release(l, inode,
		&(struct release){ .goes = { [LOCKS_RECORD] = is_owned_by },
				   .of = &owner,
				   .closing = &handle });
}

void locks_release_handle(struct locks *l, uint64_t inode, uint64_t handle)
{
	release(l, inode,
		&(struct release){ .goes = { is_by_handle, is_by_handle }, .of = &handle });
}

/* Give up the waiters of one object, or all. */
static void give_up_waiters(struct locks *l, const struct object *o, int result,
			    struct list_link *told)
{
	for (struct list_link *k = l->waiters.next, *next; k != &l->waiters; k = next) {
		struct waiter *w = container_of(k, struct waiter, all);

		next = k->next;
		if (w->object && (!o || w->object == o))
			move_to_told_locked(l, w, result, told);
	}
}

void locks_forget(struct locks *l, uint64_t inode)
{
	struct list_link told;
	struct object *o;

	list_init(&told);
	pthread_mutex_lock(&l->lock);
	o = find_locked(l, inode);
	if (o) {
		give_up_waiters(l, o, -ESTALE, &told);
		for (unsigned kind = 0; kind < KINDS; kind++)
			take_away_locked(l, o, kind, is_any, NULL);
		lock_table_commit(l->tab);
		drop_idle_locked(l, o);
	}
	pthread_mutex_unlock(&l->lock);
	tell(&told);
}

static void drop_object(struct hlink *h, void *arg)
{
	(void)arg;
	free(container_of(h, struct object, link));
}

void locks_end(struct locks *l, int result)
{
	struct list_link told;

	list_init(&told);
	pthread_mutex_lock(&l->lock);
	l->ended = result;
	give_up_waiters(l, NULL, result, &told);
	pthread_mutex_unlock(&l->lock);
	tell(&told);
}

/* ---- life ---- */

/* Takes tab over. */
static int make(struct lock_table *tab, struct locks **ret)
{
	struct locks *l = calloc(1, sizeof(*l));

	if (!l) {
		lock_table_free(tab);
		return -ENOMEM;
	}
	l->tab = tab;
	l->next = calloc(LOCK_TABLE_MAX + LOCK_TABLE_CHANGE, sizeof(*l->next));
	l->is_closing = calloc(LOCK_TABLE_MAX + LOCK_TABLE_CHANGE, sizeof(*l->is_closing));
	list_init(&l->waiters);
	pthread_mutex_init(&l->lock, NULL);
	if (!l->next || !l->is_closing) {
		locks_free(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

int locks_new(struct locks **ret)
{
	struct lock_table *tab;
	int r = lock_table_new(&tab);

	return r < 0 ? r : make(tab, ret);
}

struct attaching {
	struct locks *l;
	uint64_t (*inode_of)(uint64_t node, void *arg);
	void *arg;
	int result;
	uint32_t n_lost;
};

static void attach_one(uint32_t index, const struct lock_record *r, void *arg)
{
	struct attaching *a = arg;
	uint64_t inode = a->inode_of(r->node, a->arg);
	struct object *o = inode ? need_locked(a->l, inode) : NULL;

	if (o) {
		insert_locked(a->l, o, index);
	} else if (inode) {
		a->result = -ENOMEM;
	} else {
		lock_table_take_away(a->l->tab, index);
		a->n_lost++;
	}
}

int locks_attach(int fd, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg,
		 struct locks **ret)
{
	struct attaching a = { .inode_of = inode_of, .arg = arg };
	struct lock_table *tab;
	int r = lock_table_attach(fd, &tab);

	if (r == 0)
		r = make(tab, &a.l);
	if (r < 0)
		return r;
	lock_table_each(tab, attach_one, &a);
	if (a.result < 0) {
		locks_free(a.l);
		return a.result;
	}
	if (a.n_lost)
		lock_table_commit(tab);
	*ret = a.l;
	return 0;
}

int locks_fd(const struct locks *l)
{
	return lock_table_fd(l->tab);
}

void locks_free(struct locks *l)
{
	if (!l)
		return;
	while (!list_is_empty(&l->waiters))
		discard_locked(l, container_of(l->waiters.next, struct waiter, all));
	htab_drain(&l->objects, drop_object, NULL);
	htab_release(&l->objects);
	htab_release(&l->by_owner);
	lock_table_free(l->tab);
	free(l->next);
	free(l->is_closing);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

struct each {
	void (*fn)(const struct lock_record *r, void *arg);
	void *arg;
};

static void each_record(uint32_t index, const struct lock_record *r, void *arg)
{
	const struct each *e = arg;

	(void)index;
	if (!r->death)
		e->fn(r, e->arg);
}

void locks_each(struct locks *l, void (*fn)(const struct lock_record *r, void *arg), void *arg)
{
	LOCK_SCOPE(&l->lock);
	lock_table_each(l->tab, each_record, &(struct each){ fn, arg });
}

uint32_t locks_count(struct locks *l)
{
	LOCK_SCOPE(&l->lock);
	return lock_table_count(l->tab);
}

uint32_t locks_waiting(struct locks *l)
{
	LOCK_SCOPE(&l->lock);
	return l->n_waiters;
}
