// SPDX-License-Identifier: Apache-2.0
#include "served_mount.h"

#include "veneer/base/clock.h"
#include "veneer/base/lock.h"

#include <sys/sysmacros.h>

#define FIND_TRIES 16 /* to find a mount while others are reopened */

void mount_table_each(struct mount_table *r,
		      void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		      void *arg)
{
	struct served_mount *s;
	uint64_t id = 0;

	while ((s = served_mount_pin_after(r, id, false))) {
		id = s->id;
		fn(&s->mount, &s->at, arg);
		served_mount_unpin(s);
	}
}

size_t mount_table_count_unkept(struct mount_table *r)
{
	size_t n = 0;

	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next)
		n += container_of(l, struct served_mount, link)->is_unkept;
	return n;
}

/* Wait until mounts are neither reopened nor resumed, but no longer than a request may take.
 * Returns the number of changes that have begun. */
static uint64_t await_replacements(struct mount_table *r)
{
	const int64_t until = clock_ms() + SERVED_MOUNT_END_WAIT_MS;

	LOCK_SCOPE(&r->lock);
	while ((r->n_replacing || r->is_resuming) && clock_ms() < until)
		clock_wait(&r->unpinned, &r->lock, until);
	return r->n_replaced;
}

static bool is_at(const struct served_mount *s, const struct mount_table_target *t)
{
	const struct layer *upper = s->mount.tree.upper;

	if (s->hosted_member
		    ? sb_registry_is_at(s->hosted_member, t->dev_major, t->dev_minor, t->number)
		    : s->at.dev_major == t->dev_major && s->at.dev_minor == t->dev_minor)
		return true;
	return upper && upper->dev == makedev(t->dev_major, t->dev_minor) && upper->ino == t->ino;
}

static bool find(struct mount_table *r, const struct mount_table_target *t,
		 void (*fn)(struct mount *m, const struct served_place *at, void *arg), void *arg)
{
	struct served_mount *s;
	bool is_it = false;
	uint64_t id = 0;

	while (!is_it && (s = served_mount_pin_after(r, id, false))) {
		id = s->id;
		is_it = is_at(s, t);
		if (is_it)
			fn(&s->mount, &s->at, arg);
		served_mount_unpin(s);
	}
	return is_it;
}

bool mount_table_at(struct mount_table *r, const struct mount_table_target *t,
		    void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		    void *arg)
{
	for (int k = 0; k < FIND_TRIES; k++) {
		const uint64_t before = await_replacements(r);

		if (find(r, t, fn, arg))
			return true;
		LOCK_SCOPE(&r->lock);
		if (r->n_replaced == before)
			return false;
	}
	return false;
}
