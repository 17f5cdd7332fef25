/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction of cache entries: pure policy, without I/O, clock or lock of its own.
 *
 * 2Q, by T. Johnson and D. Shasha ("2Q: A Low Overhead High Performance Buffer Management
 * Replacement Algorithm", VLDB 1994). A new entry joins a first-in first-out queue, probation.
 * An entry that is used again moves to the queue in order of last use, protected. A key that
 * lately left probation stays as a ghost; if it comes back, it joins protected at once.
 * Probation gives way while it holds more than a quarter of the budget, so that a scan of any
 * length passes through it alone. Unlike in the paper, an entry moves up when the caller says
 * that the same part is used again: entries hold many blocks, and a scan meets an entry many
 * times, but no block twice. Ghosts are kept in a table that forgets by collision and by age,
 * which only ever costs a second chance. */
#pragma once

#include "veneer/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_POLICY_GHOSTS 4096u

enum cache_policy_queue { CACHE_POLICY_PROBATION, CACHE_POLICY_PROTECTED, CACHE_POLICY_QUEUES };

/* Sits in the object it belongs to. All fields are cache_policy.c's. */
struct cache_policy_entry {
	struct list_link order;
	uint64_t key;
	size_t bytes;
	enum cache_policy_queue queue;
};

struct cache_policy {
	struct list_link order[CACHE_POLICY_QUEUES]; /* the first one goes first */
	size_t bytes[CACHE_POLICY_QUEUES], count, budget;
	uint64_t clock; /* evictions from probation so far */
	struct {
		uint64_t key, clock;
	} ghosts[CACHE_POLICY_GHOSTS];
};

void cache_policy_init(struct cache_policy *h, size_t budget);
/* The budget is the measure of the queues; the caller enforces it. */
void cache_policy_set_budget(struct cache_policy *h, size_t budget);
/* key: a hash of the object behind the entry. */
void cache_policy_add(struct cache_policy *h, struct cache_policy_entry *e, uint64_t key,
		      size_t bytes);
/* Note a use of the entry; is_again: of a part of it that was used before. */
void cache_policy_touch(struct cache_policy *h, struct cache_policy_entry *e, bool is_again);
/* Take it out. is_evicted: for want of room, so that it may come back. */
void cache_policy_remove(struct cache_policy *h, struct cache_policy_entry *e, bool is_evicted);
/* Choose the next entry that may go, still in its queue; NULL: none. Takes time for each entry that
 * may not go. */
struct cache_policy_entry *cache_policy_victim(const struct cache_policy *h,
					       bool (*may_go)(const struct cache_policy_entry *e));
