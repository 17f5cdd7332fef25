// SPDX-License-Identifier: Apache-2.0
/* Pins a member by number while a request for it is answered. */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

static struct sb_member *find_locked(struct shared_sb *g, uint64_t number) REQUIRES(g->lock)
{
	for (struct hlink *l = htab_first(&g->members, number); l; l = htab_next(l)) {
		struct sb_member *c = container_of(l, struct sb_member, link);

		if (c->number == number)
			return c;
	}
	return NULL;
}

uint32_t *sb_member_expected_locked(struct shared_sb *g, uint64_t number)
{
	for (size_t i = 0; i < g->n_expected; i++)
		if (number && g->expected[i] == number)
			return &g->expected[i];
	return NULL;
}

/* NULL: there is none. Waits for a member that is being opened again, by a next server or for a
 * snapshot, as a program waits for a file system that does not answer. */
struct sb_member *sb_member_pin(struct shared_sb *g, uint64_t number)
{
	struct sb_member *c;

	LOCK_SCOPE(&g->lock);
	while ((c = find_locked(g, number)) ? c->is_suspended
					    : sb_member_expected_locked(g, number) != NULL)
		pthread_cond_wait(&g->unpinned, &g->lock);
	if (c)
		c->pins++;
	return c;
}

void sb_member_unpin(struct sb_member *c)
{
	LOCK_SCOPE(&c->shared_sb->lock);
	if (--c->pins == 0)
		pthread_cond_broadcast(&c->shared_sb->unpinned);
}
