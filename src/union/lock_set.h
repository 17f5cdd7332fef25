/* SPDX-License-Identifier: Apache-2.0 */
/* The held locks by file: conflicts of a request, and its changes. Calls need the mutex of the
 * set's owner. Records that a drop takes away are gone with lock_table_commit. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/union/locks.h"

#define LOCK_SET_KINDS 2

/* A file with a lock, or with a waiter: its records by kind, sorted by start. */
struct lock_object {
	struct hlink link;
	uint64_t inode;
	uint32_t first[LOCK_SET_KINDS];
	struct list_link waiters; /* managed by the set's owner, in order of arrival */
};

struct lock_set {
	struct lock_table *tab;
	uint32_t *next; /* of the object's records, by index */
	bool *is_closing; /* a descriptor of its handle was closed since */
	struct htab objects;
};

/* Takes tab over. Call lock_set_release also after a failure. 0 or -ENOMEM. */
int lock_set_init(struct lock_set *s, struct lock_table *tab);
void lock_set_release(struct lock_set *s);

/* NULL: the file has no lock and no waiter. */
struct lock_object *lock_set_find(const struct lock_set *s, uint64_t inode);
/* Find or make the object. NULL: no memory. */
struct lock_object *lock_set_need(struct lock_set *s, uint64_t inode);
void lock_set_drop_idle(struct lock_set *s, struct lock_object *o);
/* Give each object the number that fn returns. 0; -ENOMEM: nothing has changed. */
int lock_set_renumber(struct lock_set *s,
		      uint64_t (*fn)(const struct lock_object *o, uint64_t node, void *arg),
		      void *arg);
/* Enter a record of the table in the set. 0 or -ENOMEM. */
int lock_set_enter(struct lock_set *s, uint64_t inode, uint32_t index);

/* A record that conflicts with q, and the next one; NULL: none. */
const struct lock_record *lock_set_obstacle(const struct lock_set *s, const struct lock_object *o,
					    const struct lock_request *q);
const struct lock_record *lock_set_next_obstacle(const struct lock_set *s,
						 const struct lock_record *r,
						 const struct lock_request *q);
bool lock_set_all_are_closing(const struct lock_set *s, const struct lock_object *o,
			      const struct lock_request *q);
void lock_set_note_closing(struct lock_set *s, struct lock_object *o, uint64_t handle);

/* Take or release a lock, and commit. 0; 1: likewise, and a record was given up; -EAGAIN: another
 * owner holds a conflicting lock; -ENOLCK. */
int lock_set_change(struct lock_set *s, struct lock_object *o, const struct lock_request *q);
/* Take away the record locks of an owner, the locks of a handle, or all; return their number. */
uint32_t lock_set_drop_owner(struct lock_set *s, struct lock_object *o, uint64_t owner);
uint32_t lock_set_drop_handle(struct lock_set *s, struct lock_object *o, uint64_t handle);
void lock_set_drop_all(struct lock_set *s, struct lock_object *o);
/* invariants.h; q: the request that was granted just now, or NULL. */
const char *lock_set_check_invariants(const struct lock_set *s, const struct lock_object *o,
				      const struct lock_request *q);
