/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that are held, in a memory file that outlives the server. A change takes records away
 * and brings others, and all of it happens at one store: a server may be killed between any two
 * instructions, and the next one sees what was before the change or what was after it. The caller
 * serialises all calls. */
#pragma once

#include "veneer/base/types.h"

#define LOCK_TABLE_VERSION 1
#define LOCK_TABLE_MAX \
	16384u /* records; what a change brings besides is at most LOCK_TABLE_CHANGE */
#define LOCK_TABLE_CHANGE 3u

struct lock_record {
	uint64_t birth, death; /* the change that brought it, that took it away; 0: none.
				  lock_table.c's own */
	uint64_t node; /* by what its file is found again: a node id that the lock keeps in use */
	uint64_t owner, handle;
	uint64_t start, end; /* both in it */
	uint32_t pid;
	uint8_t kind, type; /* enum lock_kind, enum lock_type */
	uint8_t reserved[2];
};

struct lock_table;

int lock_table_new(struct lock_table **ret);
/* Attach the table that another server left; fd is taken over, also on failure. Entries that cannot
 * be right are left out. -EPROTO: no such table, or of another version; -ENOMEM; -errno. */
int lock_table_attach(int fd, struct lock_table **ret);
void lock_table_free(struct lock_table *t);
/* The memory file of the table; borrowed. */
int lock_table_fd(const struct lock_table *t);

/* May a change take n_dead away and bring n_new? What makes the table no larger always may. */
bool lock_table_has_room(const struct lock_table *t, unsigned n_dead, unsigned n_new);
/* Part of the next change. bring: at most LOCK_TABLE_CHANGE of them, after lock_table_has_room; its
 * index, which holds until the record is taken away. */
uint32_t lock_table_bring(struct lock_table *t, const struct lock_record *from);
void lock_table_take_away(struct lock_table *t, uint32_t index);
/* Now it has happened. */
void lock_table_commit(struct lock_table *t);

const struct lock_record *lock_table_at(const struct lock_table *t, uint32_t index);
/* How many there are; any thread may ask. */
uint32_t lock_table_count(const struct lock_table *t);
/* Call fn for each. */
void lock_table_each(const struct lock_table *t,
		     void (*fn)(uint32_t index, const struct lock_record *r, void *arg), void *arg);
