/* SPDX-License-Identifier: Apache-2.0 */
/* The held locks, in a memory file that outlives the server. A change removes records and adds
 * others, and takes effect by one store. A server may be killed between any two instructions, and
 * the next one sees the state before the change or after it. The caller serialises all calls. */
#pragma once

#include "veneer/base/types.h"

#define LOCK_TABLE_VERSION 1
/* records; a change may exceed this by LOCK_TABLE_CHANGE */
#define LOCK_TABLE_MAX	  16384u
#define LOCK_TABLE_CHANGE 3u

struct lock_record {
	/* the change that added the record, and the one that removed it; 0: none. lock_table.c's
	 * own */
	uint64_t birth, death;
	/* node id of the file, which the lock keeps in use; recovery finds the file by it */
	uint64_t node;
	uint64_t owner, handle;
	uint64_t start, end; /* both inclusive */
	uint32_t pid;
	uint8_t kind, type; /* enum lock_kind, enum lock_type */
	uint8_t reserved[2];
};

struct lock_table;

int lock_table_new(struct lock_table **ret);
/* Attach the table of another server; takes fd over, also on failure. Drops invalid entries.
 * -EPROTO: no such table, or of another version; -ENOMEM; -errno. */
int lock_table_attach(int fd, struct lock_table **ret);
void lock_table_free(struct lock_table *t);
/* The memory file of the table; borrowed. */
int lock_table_fd(const struct lock_table *t);

/* May a change remove n_dead records and add n_new? A change that does not enlarge the table always
 * may. */
bool lock_table_has_room(const struct lock_table *t, unsigned n_dead, unsigned n_new);
/* Parts of the next change. bring: add at most LOCK_TABLE_CHANGE records, after
 * lock_table_has_room; returns the index, which is valid until the record is removed. */
uint32_t lock_table_bring(struct lock_table *t, const struct lock_record *from);
void lock_table_take_away(struct lock_table *t, uint32_t index);
/* Make the change take effect. */
void lock_table_commit(struct lock_table *t);

const struct lock_record *lock_table_at(const struct lock_table *t, uint32_t index);
/* The number of records; any thread may ask. */
uint32_t lock_table_count(const struct lock_table *t);
/* Call fn for each record. */
void lock_table_each(const struct lock_table *t,
		     void (*fn)(uint32_t index, const struct lock_record *r, void *arg), void *arg);
/* invariants.h */
const char *lock_table_check_invariants(const struct lock_table *t);
