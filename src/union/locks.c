// SPDX-License-Identifier: Apache-2.0
/* Each waiter has a record in its way. So whenever a record is removed or shrinks, the waiters of
 * its object are tried (grant_locked) before the mutex is released.
 *
 * A waiter is prepared, then waits in an object, then is told: removed under the mutex, called back
 * without it. */
#include "veneer/union/locks.h"

#include "lock_set.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"

#include <string.h>

#define SEARCH_MAX 1000000u /* records visited by a search for a deadlock */

struct waiter {
	struct list_link all;
	struct list_link link; /* of the object, or of the list to be told */
	struct hlink by_owner; /* while it waits, of LOCKS_RECORD */
	struct lock_object *object; /* NULL: prepared */
	struct lock_request request;
	uint64_t number;
	uint32_t search; /* the last search that visited it */
	bool is_cancelled; /* before it waited */
	int result;
	locks_told told;
	void *arg;
};

struct locks {
	mutex_t lock;
	/* guarded by lock */
	struct lock_set set;
	struct htab by_owner;
	struct list_link waiters; /* newest first */
	uint32_t n_waiters, searches;
	uint64_t numbers;
	int ended; /* the answer to a request that would wait; 0: it may wait */
};

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

/* A lock of the object was given up. A served waiter may give up another one, too. */
static void grant_locked(struct locks *l, struct lock_object *o, struct list_link *told)
{
	bool is_more = true;

	while (is_more) {
		is_more = false;
		for (struct list_link *k = o->waiters.next, *next; k != &o->waiters; k = next) {
			struct waiter *w = waiter_of(k);
			int r;

			next = k->next;
			if (lock_set_obstacle(&l->set, o, &w->request))
				continue;
			r = lock_set_change(&l->set, o, &w->request);
			is_more |= r > 0;
			move_to_told_locked(l, w, r < 0 ? r : 0, told);
		}
	}
}

/* Call without the mutex. */
static void tell(struct list_link *told)
{
	while (!list_is_empty(told)) {
		struct waiter *w = waiter_of(told->next);

		list_del(&w->link);
		w->told(w->arg, w->result);
		free(w);
	}
}

static uint64_t hash_of(uint64_t owner)
{
	return hash_key(&owner, sizeof(owner), 0);
}

/* Does an owner in the way of q wait, directly or through others, for q's owner? The queue holds
 * the visited waiters. */
struct search {
	struct waiter **queue;
	uint32_t n, looked;
	uint64_t owner;
	bool is_found;
};

static void follow_locked(struct locks *l, const struct lock_object *o,
			  const struct lock_request *q, struct search *s)
{
	for (const struct lock_record *r = lock_set_obstacle(&l->set, o, q);
	     r && !s->is_found && s->looked < SEARCH_MAX;
	     r = lock_set_next_obstacle(&l->set, r, q)) {
		const uint64_t owner = r->owner;

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
static bool is_deadlock_locked(struct locks *l, const struct lock_object *o,
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

static int enlist_locked(struct locks *l, struct lock_object *o, struct waiter *w,
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
	struct lock_object *o;
	int r;

	*ret_is_closing = false;
	if (!is_sound(q))
		return -EINVAL;
	list_init(&told);
	mutex_lock(&l->lock);
	o = q->type == LOCKS_NONE ? lock_set_find(&l->set, q->inode)
				  : lock_set_need(&l->set, q->inode);
	if (o)
		r = lock_set_change(&l->set, o, q);
	else
		r = q->type == LOCKS_NONE ? 0 : -ENOLCK;
	if (r == -EAGAIN)
		*ret_is_closing = lock_set_all_are_closing(&l->set, o, q);
	if (o) {
		grant_locked(l, o, &told);
		lock_set_drop_idle(&l->set, o);
	}
	mutex_unlock(&l->lock);
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

static int wait_locked(struct locks *l, struct lock_object *o, struct waiter *w,
		       const struct lock_request *q)
{
	int r;

	if (w->is_cancelled)
		return -EINTR;
	if (l->ended)
		return l->ended;
	r = lock_set_change(&l->set, o, q);
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
	struct lock_object *o;
	int r = -ENOLCK;

	list_init(&told);
	mutex_lock(&l->lock);
	w = numbered_locked(l, number);
	if (!w || w->object || !is_sound(q)) {
		r = -EINVAL;
		o = NULL;
	} else {
		o = lock_set_need(&l->set, q->inode);
	}
	if (o) {
		r = wait_locked(l, o, w, q);
		grant_locked(l, o, &told);
		lock_set_drop_idle(&l->set, o);
	}
	if (r <= 0 && w && !w->object)
		discard_locked(l, w);
	mutex_unlock(&l->lock);
	tell(&told);
	return r;
}

void locks_cancel(struct locks *l, uint64_t number)
{
	struct list_link told;
	struct waiter *w;
	struct lock_object *o;

	list_init(&told);
	mutex_lock(&l->lock);
	w = numbered_locked(l, number);
	o = w ? w->object : NULL;
	if (o) {
		move_to_told_locked(l, w, -EINTR, &told);
		lock_set_drop_idle(&l->set, o);
	} else if (w) {
		w->is_cancelled = true;
	}
	mutex_unlock(&l->lock);
	tell(&told);
}

bool locks_test(struct locks *l, const struct lock_request *q, struct lock_record *ret)
{
	const struct lock_record *r;
	struct lock_object *o;

	LOCK_SCOPE(&l->lock);
	o = is_sound(q) ? lock_set_find(&l->set, q->inode) : NULL;
	r = o ? lock_set_obstacle(&l->set, o, q) : NULL;
	if (!r)
		return false;
	*ret = *r;
	return true;
}

/* ---- releases without a request ---- */

/* With an owner: drop its record locks, and mark other locks of the handle, which may end soon.
 * Without one: drop all locks of the handle. Most closed files have no locks: that costs one table
 * lookup. */
static void release(struct locks *l, uint64_t inode, const uint64_t *owner, uint64_t handle)
{
	struct list_link told;
	struct lock_object *o;
	uint32_t n = 0;

	list_init(&told);
	mutex_lock(&l->lock);
	o = lock_set_find(&l->set, inode);
	if (o)
		n = owner ? lock_set_drop_owner(&l->set, o, *owner)
			  : lock_set_drop_handle(&l->set, o, handle);
	if (n)
		lock_table_commit(l->set.tab);
	if (o && owner)
		lock_set_note_closing(&l->set, o, handle);
	if (n)
		grant_locked(l, o, &told);
	if (o)
		lock_set_drop_idle(&l->set, o);
	mutex_unlock(&l->lock);
	tell(&told);
}

void locks_release_owner(struct locks *l, uint64_t inode, uint64_t owner, uint64_t handle)
{
	release(l, inode, &owner, handle);
}

void locks_release_handle(struct locks *l, uint64_t inode, uint64_t handle)
{
	release(l, inode, NULL, handle);
}

/* End the wait of the waiters of one object, or of all. */
static void give_up_waiters(struct locks *l, const struct lock_object *o, int result,
			    struct list_link *told)
{
	for (struct list_link *k = l->waiters.next, *next; k != &l->waiters; k = next) {
		struct waiter *w = container_of(k, struct waiter, all);

		next = k->next;
		if (w->object && (!o || w->object == o))
			move_to_told_locked(l, w, result, told);
	}
}

static void forget_locked(struct locks *l, struct lock_object *o, struct list_link *told)
{
	give_up_waiters(l, o, -ESTALE, told);
	lock_set_drop_all(&l->set, o);
	lock_table_commit(l->set.tab);
	lock_set_drop_idle(&l->set, o);
}

void locks_forget(struct locks *l, uint64_t inode)
{
	struct list_link told;
	struct lock_object *o;

	list_init(&told);
	mutex_lock(&l->lock);
	o = lock_set_find(&l->set, inode);
	if (o)
		forget_locked(l, o, &told);
	mutex_unlock(&l->lock);
	tell(&told);
}

void locks_end(struct locks *l, int result)
{
	struct list_link told;

	list_init(&told);
	mutex_lock(&l->lock);
	l->ended = result;
	give_up_waiters(l, NULL, result, &told);
	mutex_unlock(&l->lock);
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
	list_init(&l->waiters);
	mutex_init(&l->lock);
	if (lock_set_init(&l->set, tab) < 0) {
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

	if (!inode) {
		lock_table_take_away(a->l->set.tab, index);
		a->n_lost++;
	} else if (lock_set_enter(&a->l->set, inode, index) < 0) {
		a->result = -ENOMEM;
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

static uint64_t number_now(const struct lock_object *o, uint64_t node, void *arg)
{
	const struct attaching *a = arg;
	uint64_t inode;

	if (!node && !list_is_empty(&o->waiters))
		node = waiter_of(o->waiters.next)->request.node;
	inode = a->inode_of(node, a->arg);
	for (struct list_link *k = o->waiters.next; k != &o->waiters; k = k->next)
		waiter_of(k)->request.inode = inode;
	return inode;
}

int locks_renumber(struct locks *l, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg)
{
	struct attaching a = { .inode_of = inode_of, .arg = arg };
	struct list_link told;
	struct lock_object *o;
	int r;

	list_init(&told);
	mutex_lock(&l->lock);
	r = lock_set_renumber(&l->set, number_now, &a);
	if (r == 0)
		l->ended = 0;
	while (r == 0 && (o = lock_set_find(&l->set, 0)))
		forget_locked(l, o, &told);
	mutex_unlock(&l->lock);
	tell(&told);
	return r;
}

int locks_fd(const struct locks *l)
{
	return lock_table_fd(l->set.tab);
}

void locks_free(struct locks *l)
{
	if (!l)
		return;
	while (!list_is_empty(&l->waiters))
		discard_locked(l, container_of(l->waiters.next, struct waiter, all));
	htab_release(&l->by_owner);
	lock_set_release(&l->set);
	mutex_destroy(&l->lock);
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
	lock_table_each(l->set.tab, each_record, &(struct each){ fn, arg });
}

uint32_t locks_count(struct locks *l)
{
	LOCK_SCOPE(&l->lock);
	return lock_table_count(l->set.tab);
}

uint32_t locks_waiting(struct locks *l)
{
	LOCK_SCOPE(&l->lock);
	return l->n_waiters;
}
