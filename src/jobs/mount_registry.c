// SPDX-License-Identifier: Apache-2.0
#include "mount_registry.h"

static struct mount_registry_member *next(struct mount_registry *r, struct mount_registry_member *m)
	REQUIRES(r->lock)
{
	struct list_link *l = m ? m->link.next : r->members.next;

	return l == &r->members ? NULL : container_of(l, struct mount_registry_member, link);
}

void mount_registry_enter(struct mount_registry *r, struct mount_registry_member *m)
{
	m->number = ++r->last_number;
	list_add_tail(&r->members, &m->link);
}

struct mount_registry_member *mount_registry_next(struct mount_registry *r,
						  struct mount_registry_member *m)
{
	do
		m = next(r, m);
	while (m && m->is_leaving);
	return m;
}

struct mount_registry_member *mount_registry_find(struct mount_registry *r, uint32_t number)
{
	struct mount_registry_member *m = NULL;

	while ((m = mount_registry_next(r, m)) && m->number != number)
		;
	return m;
}

void mount_registry_unpin(struct mount_registry *r, struct mount_registry_member *m)
{
	m->is_pinned = false;
	pthread_cond_broadcast(&r->unpinned);
}

struct mount_registry_member *mount_registry_leave(struct mount_registry *r, uint32_t number)
{
	for (;;) {
		struct mount_registry_member *m = NULL;

		while ((m = next(r, m)) && m->number != number)
			;
		if (!m)
			return NULL;
		m->is_leaving = true;
		if (!m->is_pinned) {
			list_del(&m->link);
			return m;
		}
		pthread_cond_wait(&r->unpinned, &r->lock);
	}
}
