// SPDX-License-Identifier: Apache-2.0
/* Members of the shared superblocks: they enter, a thread looks where they are mounted, and they
 * leave.
 *
 * A member is entered, then bound or abandoned, then perhaps forgotten (the kernel was told). It
 * leaves when the kernel has dropped its root or the superblock is over. */
#include "sb_registry-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/mountinfo.h"

#include <stdio.h>

/* A member that is mounted only in other namespaces is looked for less often. */
#define ELSEWHERE_MS 2000

static struct hosted_member *hosted_member_of(struct list_link *l)
{
	return container_of(l, struct hosted_member, link);
}

/* ---- leaving ---- */

static void *leave_one(void *arg)
{
	struct hosted_member *o = arg;
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;
	bool is_last;

	cs->calls->leaves(o->owner);
	sb_member_leave(o->sb_member);
	mutex_lock(&cs->lock);
	list_del(&o->link);
	cs->count--;
	is_last = c->state == OVER && list_is_empty(&c->members);
	if (is_last)
		c->last = o;
	pthread_cond_broadcast(&cs->changed);
	mutex_unlock(&cs->lock);
	if (!is_last) {
		cs->calls->ended(o->owner);
		free(o);
	}
	sb_registry_sb_release(c);
	sb_registry_end_thread(cs);
	return NULL;
}

/* Find a member that is to leave, and mark it; NULL: none. */
static struct hosted_member *take_leaving(struct hosted_sb *c)
{
	LOCK_SCOPE(&c->cs->lock);
	for (struct list_link *l = c->members.next; l != &c->members; l = l->next) {
		struct hosted_member *o = hosted_member_of(l);

		if (!o->is_leaving && (o->is_bound || o->is_abandoned) &&
		    (o->is_unused || c->state == OVER)) {
			o->is_leaving = true;
			return o;
		}
	}
	return NULL;
}

void sb_registry_let_leave(struct hosted_sb *c)
{
	struct hosted_member *o;

	while ((o = take_leaving(c)))
		sb_registry_run(c->cs, leave_one, o);
}

/* ---- where they are mounted ---- */

static void *forget_one(void *arg)
{
	struct hosted_member *o = arg;
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;

	sb_member_forget(o->sb_member);
	/* The root was never looked up, or the kernel has already dropped it. */
	if (!sb_member_is_used(o->sb_member))
		sb_registry_note_unused(o);
	mutex_lock(&cs->lock);
	o->is_leaving = false;
	pthread_cond_broadcast(&cs->changed);
	mutex_unlock(&cs->lock);
	sb_registry_sb_release(c);
	sb_registry_end_thread(cs);
	return NULL;
}

/* A search for roots in one mount namespace, or in all. */
struct search {
	uint32_t number;
	bool is_found;
};

static void note_root(const char *root, void *arg)
{
	struct search *s = arg;
	unsigned number;

	if (sscanf(root, "/%9u", &number) == 1 && number == s->number)
		s->is_found = true;
}

static bool is_mounted(struct hosted_member *o, bool *ret_is_elsewhere)
{
	const struct hosted_sb *c = o->common;
	struct search s = { .number = sb_member_number(o->sb_member) };

	*ret_is_elsewhere = false;
	if (mountinfo_roots(o->mount_ns, &o->seen_by, c->dev_major, c->dev_minor, note_root, &s) <
		    0 ||
	    !s.is_found) {
		*ret_is_elsewhere = true;
		/* On an error, assume that it is mounted. */
		if (mountinfo_roots(0, NULL, c->dev_major, c->dev_minor, note_root, &s) < 0)
			return true;
	}
	return s.is_found;
}

static bool is_due(const struct sb_registry *cs, const struct hosted_member *o, int64_t now)
	REQUIRES(cs->lock)
{
	if (o->is_leaving || o->is_unused || o->round == cs->round)
		return false;
	return (o->is_abandoned || o->is_bound) && o->next_ms <= now;
}

/* Find a member that is due, keep it from leaving, and hold its superblock; NULL: none. */
static struct hosted_member *take_due(struct sb_registry *cs, int64_t now)
{
	LOCK_SCOPE(&cs->lock);
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next) {
		struct hosted_sb *c = common_of(l);

		for (struct list_link *k = c->members.next; k != &c->members; k = k->next) {
			struct hosted_member *o = hosted_member_of(k);

			if (!is_due(cs, o, now))
				continue;
			o->round = cs->round;
			o->is_leaving = true;
			c->holds++;
			return o;
		}
	}
	return NULL;
}

static void look_at(struct sb_registry *cs, struct hosted_member *o)
{
	struct hosted_sb *c = o->common;
	bool is_elsewhere = false, is_there = !o->is_abandoned && is_mounted(o, &is_elsewhere),
	     ends, is_rare;

	mutex_lock(&cs->lock);
	/* Looking in all namespaces is expensive, so it is rare for a member that its own namespace
	 * does not show. The first such look is followed by another at once. */
	is_rare = o->is_abandoned ? o->is_forgotten : is_elsewhere && (is_there || o->is_forgotten);
	o->next_ms = clock_ms() + (is_rare ? ELSEWHERE_MS : SB_REGISTRY_TICK_MS / 2);
	ends = o->is_wanted && o->is_forgotten && !is_there;
	o->is_wanted = o->is_wanted && !is_there && !ends;
	o->is_unused |= ends;
	o->is_forgotten = !is_there;
	o->is_leaving = !is_there;
	pthread_cond_broadcast(&cs->changed);
	mutex_unlock(&cs->lock);
	if (ends)
		log_warn("%s is detached but in use, and another mount wants its upper; ending",
			 o->mountpoint);
	if (is_there)
		sb_registry_sb_release(c);
	else
		sb_registry_run(cs, forget_one, o);
}

static void let_all_leave(struct sb_registry *cs)
{
	struct hosted_sb *c = NULL;

	while ((c = sb_registry_hold_next(cs, c)))
		sb_registry_let_leave(c);
}

/* Wait until there is something to do. False: the registry is stopping. */
static bool await_round(struct sb_registry *cs, int64_t *ret_now)
{
	LOCK_SCOPE(&cs->lock);
	if (!cs->is_stopping && !cs->is_wanted && !cs->is_hurried && cs->count)
		sb_registry_wait_locked(cs, SB_REGISTRY_TICK_MS);
	while (!cs->is_stopping && !cs->count)
		pthread_cond_wait(&cs->changed, &cs->lock);
	*ret_now = cs->is_wanted ? INT64_MAX : clock_ms();
	cs->is_wanted = cs->is_hurried = false;
	cs->round++;
	return !cs->is_stopping;
}

static void *watch(void *arg)
{
	struct sb_registry *cs = arg;
	int64_t now;

	while (await_round(cs, &now)) {
		struct hosted_member *o;

		let_all_leave(cs);
		while ((o = take_due(cs, now)))
			look_at(cs, o);
		let_all_leave(cs);
	}
	sb_registry_end_thread(cs);
	return NULL;
}

void sb_registry_check(struct sb_registry *cs)
{
	LOCK_SCOPE(&cs->lock);
	cs->is_wanted = true;
	pthread_cond_broadcast(&cs->changed);
}

/* ---- entering ---- */

static int enlist(struct hosted_sb *c, struct hosted_member *o)
{
	struct sb_registry *cs = c->cs;
	bool starts;

	mutex_lock(&cs->lock);
	if (c->state != OPEN) {
		mutex_unlock(&cs->lock);
		return -ENOTCONN;
	}
	list_add_tail(&c->members, &o->link);
	c->holds++;
	cs->count++;
	starts = !cs->is_watched;
	cs->is_watched = true;
	pthread_cond_broadcast(&cs->changed);
	mutex_unlock(&cs->lock);
	if (starts && sb_registry_start_thread(cs, watch, cs) < 0) {
		log_warn("no thread to look for unmounted roots: their mounts end with "
			 "the shared superblock");
		mutex_lock(&cs->lock);
		cs->is_watched = false;
		mutex_unlock(&cs->lock);
	}
	return 0;
}

static void delist(struct hosted_member *o)
{
	struct hosted_sb *c = o->common;

	mutex_lock(&c->cs->lock);
	list_del(&o->link);
	c->cs->count--;
	pthread_cond_broadcast(&c->cs->changed);
	mutex_unlock(&c->cs->lock);
	free(o);
	sb_registry_sb_release(c);
}

int sb_registry_enter(struct hosted_sb *c, struct mount *m, void *owner, const uint32_t *secret,
		      struct hosted_member **ret)
{
	struct hosted_member *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->common = c;
	o->owner = owner;
	o->mountpoint = m->opts.mountpoint;
	list_init(&o->link);
	/* The hold keeps the session of the superblock from here on. */
	r = enlist(c, o);
	if (r < 0) {
		free(o);
		return r;
	}
	r = sb_member_join(c->shared_sb, m, o, secret, &o->sb_member);
	if (r < 0) {
		delist(o);
		return r;
	}
	/* Its client may be about to bind it, so wait with the first regular look. */
	if (secret && !sb_member_is_used(o->sb_member))
		o->next_ms = clock_ms() + ELSEWHERE_MS;
	*ret = o;
	return 0;
}

uint32_t sb_registry_number(const struct hosted_member *o)
{
	return sb_member_number(o->sb_member);
}

bool sb_registry_is_at(const struct hosted_member *o, unsigned dev_major, unsigned dev_minor,
		       uint32_t number)
{
	return o->common->dev_major == dev_major && o->common->dev_minor == dev_minor &&
	       sb_member_number(o->sb_member) == number;
}

bool sb_registry_describe(const struct hosted_member *o, struct mount_record *ret)
{
	ret->group = o->common->key;
	ret->secret = sb_member_secret(o->sb_member);
	return o->common->kept.is_kept;
}

/* Mark the member as bound or abandoned; its owner may be gone when this returns. */
static void settle(struct hosted_member *o)
{
	struct hosted_sb *c = o->common;
	struct sb_registry *cs = c->cs;
	bool is_over;

	mutex_lock(&cs->lock);
	*(o->mount_ns ? &o->is_bound : &o->is_abandoned) = true;
	is_over = c->state == OVER;
	c->holds++;
	pthread_cond_broadcast(&cs->changed);
	mutex_unlock(&cs->lock);
	if (is_over)
		sb_registry_let_leave(c);
	sb_registry_sb_release(c);
}

void sb_registry_bound(struct hosted_member *o, ino_t mount_ns)
{
	const bool is_used = sb_member_is_used(o->sb_member);

	mutex_lock(&o->common->cs->lock);
	/* The kernel may have dropped the root between two looks at it. */
	if (is_used)
		o->is_unused = false;
	mutex_unlock(&o->common->cs->lock);
	o->mount_ns = mount_ns ? mount_ns : (ino_t)-1;
	settle(o);
}

void sb_registry_abandon(struct hosted_member *o)
{
	o->mount_ns = 0;
	settle(o);
}

/* ---- while its mount is reopened ---- */

static bool is_ending(const struct hosted_member *o)
{
	return o->is_unused || o->is_abandoned || o->common->state != OPEN;
}

/* Wait for a thread that looks where the member is mounted, and for a client that is about to bind
 * it. */
static int begin_leaving(struct hosted_member *o, unsigned ms)
{
	const int64_t end_ms = clock_ms() + ms;
	struct hosted_sb *c = o->common;

	LOCK_SCOPE(&c->cs->lock);
	while ((o->is_leaving || !o->is_bound) && !is_ending(o) && clock_ms() < end_ms)
		clock_wait(&c->cs->changed, &c->cs->lock, end_ms);
	if (o->is_leaving || !o->is_bound || is_ending(o))
		return -EBUSY;
	o->is_leaving = true;
	c->holds++;
	return 0;
}

/* The member may leave again. */
static void end_leaving(struct hosted_member *o, bool is_lost)
{
	struct hosted_sb *c = o->common;

	mutex_lock(&c->cs->lock);
	o->is_unused |= is_lost;
	o->is_leaving = false;
	pthread_cond_broadcast(&c->cs->changed);
	mutex_unlock(&c->cs->lock);
	sb_registry_let_leave(c);
	sb_registry_sb_release(c);
}

int sb_registry_suspend(struct hosted_member *o, unsigned ms)
{
	return begin_leaving(o, ms) ?: sb_member_suspend(o->sb_member, ms);
}

void sb_registry_reopened(struct hosted_member *o)
{
	o->mountpoint = sb_member_mount(o->sb_member)->opts.mountpoint;
	sb_member_resume(o->sb_member);
}

void sb_registry_resumed(struct hosted_member *o)
{
	end_leaving(o, false);
}

void sb_registry_lost(struct hosted_member *o, struct locks *locks)
{
	sb_member_lost(o->sb_member, locks);
	end_leaving(o, true);
}

void sb_registry_evict(struct hosted_member *o)
{
	LOCK_SCOPE(&o->common->cs->lock);
	o->is_wanted = o->common->cs->is_wanted = true;
	pthread_cond_broadcast(&o->common->cs->changed);
}
