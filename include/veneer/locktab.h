/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that are held, in a memory file that outlives the server. A change takes records away and brings others, and
 * all of it happens at one store: a server may be killed between any two instructions, and the next one sees what was
 * before the change or what was after it. The caller serialises all calls. */
#pragma once

#include "veneer/types.h"

#define LOCKTAB_VERSION 1
#define LOCKTAB_MAX 16384u	/* records; what a change brings besides is at most LOCKTAB_CHANGE */
#define LOCKTAB_CHANGE 3u

struct lock_record {
	uint64_t birth, death;	/* the change that brought it, that took it away; 0: none. locktab.c's own */
	uint64_t node;		/* by what its file is found again: a node id that the lock keeps in use */
	uint64_t owner, handle;
	uint64_t start, end;	/* both in it */
	uint32_t pid;
	uint8_t kind, type;	/* enum lock_kind, enum lock_type */
	uint8_t reserved[2];
};

struct locktab;

int locktab_new(struct locktab **ret);
/* What another server left; fd is taken over, also on failure. What cannot be right is left out. -EPROTO: no such
 * table, or of another version; -ENOMEM; -errno. */
int locktab_attach(int fd, struct locktab **ret);
void locktab_free(struct locktab *t);
/* Its memory file; borrowed. */
int locktab_fd(const struct locktab *t);

/* May a change take n_dead away and bring n_new? What makes the table no larger always may. */
bool locktab_has_room(const struct locktab *t, unsigned n_dead, unsigned n_new);
/* Part of the next change. bring: at most LOCKTAB_CHANGE of them, after locktab_has_room; its index, which holds until
 * the record is taken away. */
uint32_t locktab_bring(struct locktab *t, const struct lock_record *r);
void locktab_take_away(struct locktab *t, uint32_t index);
/* Now it has happened. */
void locktab_commit(struct locktab *t);

const struct lock_record *locktab_at(const struct locktab *t, uint32_t index);
/* How many there are; any thread may ask. */
uint32_t locktab_count(const struct locktab *t);
/* Call fn for each. */
void locktab_each(const struct locktab *t, void (*fn)(uint32_t index, const struct lock_record *r, void *arg), void *arg);
