// SPDX-License-Identifier: Apache-2.0
/* Invariants, under the lock:
 * 1. a slot has a backing_id if and only if a registration in by_slot is its;
 * 2. a registration is in idle if and only if its slot has no open on it, the least recently used
 *    first;
 * 3. one in dead has no slot any more; dead ones are few, since the thread that makes one reaps
 *    soon. */
#include "veneer/passthrough/passthrough_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"

#include <sys/ioctl.h>
#include <time.h>

/* Newer than the headers of the systems we build on. */
struct kernel_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define KERNEL_BACKING_OPEN  _IOW(229, 1, struct kernel_backing_map)
#define KERNEL_BACKING_CLOSE _IOW(229, 2, uint32_t)

#define CALLERS	   64 /* remembered; one that is forgotten is refused once more */
#define LEFT_FILES 256 /* remembered, of as many as are written for the first time at once */
#define LEFT_S	   30 /* a caller that was sent on has come back by then, also on a busy machine */

struct registration {
	struct hlink by_slot;
	struct list_link link; /* in idle or dead, or in neither */
	struct list_link of_all; /* in all, unless it is dead */
	struct node_slot *slot;
	uint32_t id;
};

/* A thread whose last open was refused, so that it would look the name up again. */
struct sent_on {
	uint32_t caller;
	const struct node_slot *slot;
};

/* A thread whose last open was that of a file that a copy could refer to. */
struct copier {
	uint32_t caller;
	const struct node_slot *source;
};

/* A file one of whose node ids was left lately. */
struct left_file {
	uint64_t ino;
	time_t until;
};

struct passthrough_table {
	int devfd;
	struct passthrough_table_device device;
	unsigned max;
	mutex_t lock;
	GUARDED_BY(lock) struct htab by_slot;
	GUARDED_BY(lock) struct list_link all, idle, dead;
	GUARDED_BY(lock) struct sent_on sent_on[CALLERS];
	GUARDED_BY(lock) struct left_file left[LEFT_FILES];
	GUARDED_BY(lock) struct copier copiers[CALLERS];
};

static int kernel_open(int devfd, int fd)
{
	const struct kernel_backing_map map = { .fd = fd };
	int id = ioctl(devfd, KERNEL_BACKING_OPEN, &map);

	return id > 0 ? id : id < 0 ? -errno : -EIO;
}

static int kernel_close(int devfd, uint32_t id)
{
	return ioctl(devfd, KERNEL_BACKING_CLOSE, &id) < 0 ? -errno : 0;
}

int passthrough_table_new(int devfd, const struct passthrough_table_device *device, unsigned max,
			  struct passthrough_table **ret)
{
	struct passthrough_table *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->devfd = devfd;
	b->device = device ? *device
			   : (struct passthrough_table_device){ kernel_open, kernel_close };
	b->max = max;
	mutex_init(&b->lock);
	list_init(&b->all);
	list_init(&b->idle);
	list_init(&b->dead);
	*ret = b;
	return 0;
}

static void free_registration(struct hlink *l, void *arg)
{
	(void)arg;
	free(container_of(l, struct registration, by_slot));
}

void passthrough_table_free(struct passthrough_table *b)
{
	if (!b)
		return;
	lock_is_private(&b->lock);
	while (!list_is_empty(&b->dead)) {
		struct registration *r = container_of(b->dead.next, struct registration, link);

		list_del(&r->link);
		free(r);
	}
	htab_drain(&b->by_slot, free_registration, NULL);
	htab_release(&b->by_slot);
	mutex_destroy(&b->lock);
	free(b);
}

int passthrough_table_register(struct passthrough_table *b, int fd, uint32_t *ret_id)
{
	int id = b->device.open(b->devfd, fd);

	if (id < 0)
		return id;
	*ret_id = (uint32_t)id;
	return 0;
}

void passthrough_table_unregister(struct passthrough_table *b, uint32_t id)
{
	b->device.close(b->devfd, id);
}

enum passthrough_table_way passthrough_table_choose(const struct node_slot *s,
						    const struct passthrough_table_ask *ask)
{
	if (s->is_left) {
		/* A name must be led to the new id. A caller that is not led there has a
		 * descriptor, and no name. */
		if (ask->writes || !ask->is_back)
			return PASSTHROUGH_TABLE_WAY_STALE;
		/* A descriptor that is opened once more sees the same pages; pages of two node ids
		 * would not agree. */
		return s->n_backed ? PASSTHROUGH_TABLE_WAY_BACKED : PASSTHROUGH_TABLE_WAY_DIRECT;
	}
	if (s->n_backed) {
		if (passthrough_table_is_upper(s->passthrough_table_kind) ||
		    (!ask->writes && ask->offer == s->passthrough_table_kind))
			return PASSTHROUGH_TABLE_WAY_BACKED;
		return PASSTHROUGH_TABLE_WAY_SWITCH;
	}
	if (s->n_cached)
		return PASSTHROUGH_TABLE_WAY_CACHED;
	/* A direct open that is mapped takes to pages. */
	if (s->n_direct && ask->wish != PASSTHROUGH_TABLE_WAY_DIRECT)
		return ask->offer == PASSTHROUGH_TABLE_FLAT ? ask->otherwise
							    : PASSTHROUGH_TABLE_WAY_CACHED;
	return ask->wish;
}

static uint64_t slot_hash(const struct node_slot *s)
{
	return (uintptr_t)s / sizeof(*s) * 0x9E3779B97F4A7C15u;
}

static struct registration *find_locked(struct passthrough_table *b, const struct node_slot *s)
{
	for (struct hlink *l = htab_first(&b->by_slot, slot_hash(s)); l; l = htab_next(l)) {
		struct registration *r = container_of(l, struct registration, by_slot);

		if (r->slot == s)
			return r;
	}
	return NULL;
}

static void release_later_locked(struct passthrough_table *b, struct registration *r)
{
	htab_remove(&b->by_slot, &r->by_slot);
	__atomic_store_n(&r->slot->backing_id, 0, __ATOMIC_SEQ_CST);
	r->slot->passthrough_table_kind = PASSTHROUGH_TABLE_NONE;
	list_del(&r->of_all);
	list_del(&r->link);
	list_add_tail(&b->dead, &r->link);
}

static void detach_locked(struct passthrough_table *b, struct node_slot *s)
{
	struct registration *r = s->backing_id ? find_locked(b, s) : NULL;

	if (r)
		release_later_locked(b, r);
}

/* False: there is no room, or no memory. */
static bool enter_locked(struct passthrough_table *b, struct node_slot *s,
			 enum passthrough_table_kind kind, uint32_t id) REQUIRES(b->lock)
{
	struct registration *r;

	if (b->by_slot.count >= b->max) {
		if (list_is_empty(&b->idle))
			return false;
		release_later_locked(b, container_of(b->idle.next, struct registration, link));
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return false;
	r->slot = s;
	r->id = id;
	list_init(&r->link);
	if (htab_insert(&b->by_slot, &r->by_slot, slot_hash(s)) < 0) {
		free(r);
		return false;
	}
	list_add_tail(&b->all, &r->of_all);
	/* In this order, as a server may die between them. */
	s->passthrough_table_kind = kind;
	__atomic_store_n(&s->backing_id, id, __ATOMIC_SEQ_CST);
	return true;
}

static enum passthrough_table_kind plain_kind(enum passthrough_table_kind kind)
{
	return passthrough_table_is_upper(kind) ? PASSTHROUGH_TABLE_UPPER : kind;
}

/* Before the open is counted. */
static void note_writer(struct node_slot *s, const struct passthrough_table_ask *ask)
{
	if (!passthrough_table_is_upper(s->passthrough_table_kind))
		return;
	if (ask->writes)
		s->passthrough_table_kind = PASSTHROUGH_TABLE_UPPER;
	else if (!s->n_backed)
		s->passthrough_table_kind = PASSTHROUGH_TABLE_UPPER_READ;
}

/* Count one more open on the backing file; CACHED where there is no room for it. */
static enum passthrough_table_way back_locked(struct passthrough_table *b, struct node_slot *s,
					      const struct passthrough_table_ask *ask,
					      uint32_t fresh, uint32_t *ret_id) REQUIRES(b->lock)
{
	/* An idle registration may be of the time before the file was copied up. */
	if (!s->n_backed && s->backing_id && plain_kind(s->passthrough_table_kind) != ask->offer)
		detach_locked(b, s);
	if (!s->backing_id) {
		if (!fresh)
			return PASSTHROUGH_TABLE_WAY_REGISTER;
		if (!enter_locked(b, s, ask->offer, fresh))
			return PASSTHROUGH_TABLE_WAY_CACHED;
	} else if (!s->n_backed) {
		list_del(&find_locked(b, s)->link);
	}
	note_writer(s, ask);
	s->n_backed++;
	*ret_id = s->backing_id;
	return PASSTHROUGH_TABLE_WAY_BACKED;
}

static bool is_back_locked(struct passthrough_table *b, const struct node_slot *s, uint32_t caller)
{
	const struct sent_on *e = &b->sent_on[caller % CALLERS];

	return e->slot == s && e->caller == caller;
}

static void note_answer_locked(struct passthrough_table *b, const struct node_slot *s,
			       uint32_t caller, bool is_sent_on)
{
	struct sent_on *e = &b->sent_on[caller % CALLERS];

	if (is_sent_on)
		*e = (struct sent_on){ caller, s };
	else if (e->caller == caller)
		e->slot = NULL;
}

static time_t seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

static struct left_file *left_file_locked(struct passthrough_table *b, const struct node_slot *s)
{
	return &b->left[s->ino * 0x9E3779B97F4A7C15u >> 32 & (LEFT_FILES - 1)];
}

static void leave_locked(struct passthrough_table *b, struct node_slot *s)
{
	s->is_left = true;
	*left_file_locked(b, s) = (struct left_file){ s->ino, seconds() + LEFT_S };
}

bool passthrough_table_was_left(struct passthrough_table *b, const struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	const struct left_file *f = left_file_locked(b, s);

	return f->until && f->ino == s->ino && seconds() <= f->until;
}

enum passthrough_table_way passthrough_table_take(struct passthrough_table *b, struct node_slot *s,
						  const struct passthrough_table_ask *asked,
						  uint32_t fresh, uint32_t *ret_id)
{
	struct passthrough_table_ask now = *asked;
	const struct passthrough_table_ask *ask = &now;
	enum passthrough_table_way way;

	LOCK_SCOPE(&b->lock);
	*ret_id = 0;
	now.is_back = is_back_locked(b, s, ask->caller);
	way = passthrough_table_choose(s, ask);
	if (way == PASSTHROUGH_TABLE_WAY_BACKED)
		way = back_locked(b, s, ask, fresh, ret_id);
	if (way == PASSTHROUGH_TABLE_WAY_REGISTER ||
	    (way == PASSTHROUGH_TABLE_WAY_SWITCH && ask->waits))
		return way;
	if (way == PASSTHROUGH_TABLE_WAY_SWITCH)
		leave_locked(b, s);
	note_answer_locked(b, s, ask->caller, !ask->writes && way > PASSTHROUGH_TABLE_WAY_REGISTER);
	if (way == PASSTHROUGH_TABLE_WAY_CACHED)
		s->n_cached++;
	else if (way == PASSTHROUGH_TABLE_WAY_DIRECT)
		s->n_direct++;
	return way;
}

enum passthrough_table_kind passthrough_table_kind_in_use(struct passthrough_table *b,
							  const struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	return s->n_backed ? s->passthrough_table_kind : PASSTHROUGH_TABLE_NONE;
}

bool passthrough_table_is_lower(struct passthrough_table *b, const struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	return !s->is_left && s->n_backed && passthrough_table_is_below(s->passthrough_table_kind);
}

bool passthrough_table_is_registered(struct passthrough_table *b, const struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	return s->n_backed || s->backing_id;
}

bool passthrough_table_is_alone(struct passthrough_table *b, const struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	return !s->is_left && !s->is_successor && s->n_cached == 1 && !s->n_direct && !s->n_backed;
}

bool passthrough_table_leave(struct passthrough_table *b, struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	if (s->n_backed && passthrough_table_is_below(s->passthrough_table_kind))
		leave_locked(b, s);
	return s->is_left;
}

void passthrough_table_note_source(struct passthrough_table *b, uint32_t caller,
				   const struct node_slot *source)
{
	LOCK_SCOPE(&b->lock);
	struct copier *c = &b->copiers[caller % CALLERS];

	if (source || c->caller == caller)
		*c = (struct copier){ caller, source };
}

bool passthrough_table_is_copier(struct passthrough_table *b, uint32_t caller)
{
	LOCK_SCOPE(&b->lock);
	const struct copier *c = &b->copiers[caller % CALLERS];
	const struct node_slot *s = c->caller == caller ? c->source : NULL;

	return s && (s->n_backed || s->n_cached || s->n_direct);
}

void passthrough_table_drop(struct passthrough_table *b, struct node_slot *s,
			    enum passthrough_table_way way)
{
	struct registration *r;

	LOCK_SCOPE(&b->lock);
	if (way == PASSTHROUGH_TABLE_WAY_CACHED && s->n_cached)
		s->n_cached--;
	else if (way == PASSTHROUGH_TABLE_WAY_DIRECT && s->n_direct)
		s->n_direct--;
	else if (way == PASSTHROUGH_TABLE_WAY_BACKED && s->n_backed && --s->n_backed == 0 &&
		 (r = find_locked(b, s)))
		list_add_tail(&b->idle, &r->link);
}

void passthrough_table_detach(struct passthrough_table *b, struct node_slot *s)
{
	LOCK_SCOPE(&b->lock);
	detach_locked(b, s);
}

void passthrough_table_reap(struct passthrough_table *b)
{
	mutex_lock(&b->lock);
	while (!list_is_empty(&b->dead)) {
		struct registration *r = container_of(b->dead.next, struct registration, link);

		list_del(&r->link);
		mutex_unlock(&b->lock);
		b->device.close(b->devfd, r->id);
		free(r);
		mutex_lock(&b->lock);
	}
	mutex_unlock(&b->lock);
}

/* More than max only if the mount had been opened with more. */
int passthrough_table_restore(struct passthrough_table *b, struct node_slot *s)
{
	struct registration *r;

	if (!s->backing_id)
		return 0;
	LOCK_SCOPE(&b->lock);
	if (find_locked(b, s))
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->slot = s;
	r->id = s->backing_id;
	list_init(&r->link);
	if (htab_insert(&b->by_slot, &r->by_slot, slot_hash(s)) < 0) {
		free(r);
		return -ENOMEM;
	}
	list_add_tail(&b->all, &r->of_all);
	if (!s->n_backed)
		list_add_tail(&b->idle, &r->link);
	if (s->passthrough_table_kind == PASSTHROUGH_TABLE_FLAT)
		s->passthrough_table_kind = PASSTHROUGH_TABLE_LEFT;
	return 0;
}

size_t passthrough_table_count(struct passthrough_table *b)
{
	LOCK_SCOPE(&b->lock);
	return b->by_slot.count;
}

#define slot_of_all(l) (container_of(l, struct registration, of_all)->slot)

static int release_idle(struct passthrough_table *b)
{
	struct list_link *next;

	LOCK_SCOPE(&b->lock);
	for (struct list_link *l = b->all.next; l != &b->all; l = next) {
		struct node_slot *s = slot_of_all(l);

		next = l->next;
		if (!passthrough_table_is_upper(s->passthrough_table_kind))
			continue;
		if (!s->n_backed)
			detach_locked(b, s);
		else if (s->passthrough_table_kind == PASSTHROUGH_TABLE_UPPER)
			return -ETXTBSY;
	}
	return 0;
}

int passthrough_table_release_idle(struct passthrough_table *b)
{
	int r = release_idle(b);

	passthrough_table_reap(b);
	return r;
}

void passthrough_table_freeze(struct passthrough_table *b)
{
	LOCK_SCOPE(&b->lock);
	for (struct list_link *l = b->all.next; l != &b->all; l = l->next) {
		struct node_slot *s = slot_of_all(l);

		if (s->passthrough_table_kind == PASSTHROUGH_TABLE_UPPER_READ)
			s->passthrough_table_kind = PASSTHROUGH_TABLE_LOWER;
	}
}
