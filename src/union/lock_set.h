/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that are held, file by file: what a request meets, and what it changes. Calls
 * need the mutex of the set's owner; what a drop takes away is gone with lock_table_commit. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/union/locks.h"

#define LOCK_SET_KINDS 2

/* A file that has a lock, or a waiter for one: its records by kind, in the order of their starts.
 */
struct lock_object {
	struct hlink link;
	uint64_t inode;
	uint32_t first[LOCK_SET_KINDS];
	struct list_link waiters; /* of the owner of the set; in the order in which they came */
};

struct lock_set {
	struct lock_table *tab;
	uint32_t *next; /* of the object's records, by index */
	bool *is_closing; /* a descriptor of its handle was closed since */
	struct htab objects;
};

/* Takes tab over. Released in any case. 0 or -ENOMEM. */
int lock_set_init(struct lock_set *s, struct lock_table *tab);
void lock_set_release(struct lock_set *s);

/* NULL: the file has no lock, and nobody waits for one. */
struct lock_object *lock_set_find(const struct lock_set *s, uint64_t inode);
/* NULL: no memory. */
struct lock_object *lock_set_need(struct lock_set *s, uint64_t inode);
void lock_set_drop_idle(struct lock_set *s, struct lock_object *o);
/* Give each object the number that fn says. 0; -ENOMEM: nothing has changed. */
int lock_set_renumber(struct lock_set *s,
		      uint64_t (*fn)(const struct lock_object *o, uint64_t node, void *arg),
		      void *arg);
/* Enter a record of the table. 0 or -ENOMEM. */
int lock_set_enter(struct lock_set *s, uint64_t inode, uint32_t index);

/* A record that is in the way of q, and the next; NULL: there is none. */
const struct lock_record *lock_set_obstacle(const struct lock_set *s, const struct lock_object *o,
					    const struct lock_request *q);
const struct lock_record *lock_set_next_obstacle(const struct lock_set *s,
						 const struct lock_record *r,
						 const struct lock_request *q);
bool lock_set_all_are_closing(const struct lock_set *s, const struct lock_object *o,
			      const struct lock_request *q);
void lock_set_note_closing(struct lock_set *s, struct lock_object *o, uint64_t handle);

/* Have it, or give it up; committed. 0; 1: and something was given up; -EAGAIN: something is in
 * the way; -ENOLCK. */
int lock_set_change(struct lock_set *s, struct lock_object *o, const struct lock_request *q);
/* Take away the record locks of an owner, what was taken by a handle, or all; how many. */
uint32_t lock_set_drop_owner(struct lock_set *s, struct lock_object *o, uint64_t owner);
uint32_t lock_set_drop_handle(struct lock_set *s, struct lock_object *o, uint64_t handle);
void lock_set_drop_all(struct lock_set *s, struct lock_object *o);
