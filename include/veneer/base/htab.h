/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive chained hash table. Owns its buckets, never its entries; no lock of its own. */
#pragma once

#include "veneer/base/container_of.h"

#include <stddef.h>
#include <stdint.h>

struct hlink {
	struct hlink *next;
	uint64_t hash;
};

struct htab {
	struct hlink **buckets;
	size_t nbuckets, count;
};

/* Zero-initialised is an empty table; buckets are allocated at the first insert. */
void htab_release(struct htab *t);
/* Insert without looking for equals. 0 or -ENOMEM (then not inserted). Grows at load 1; a
 * failure to grow is not an error. */
int htab_insert(struct htab *t, struct hlink *e, uint64_t hash);
/* Make room for so many entries at once; without memory they come one by one. */
void htab_reserve(struct htab *t, size_t count);
/* Remove an entry; nothing, if it is not in the table. */
void htab_remove(struct htab *t, struct hlink *e);
/* First entry of that hash, then the next of the same hash; NULL at the end. The caller
 * compares keys. */
struct hlink *htab_first(const struct htab *t, uint64_t hash);
struct hlink *htab_next(const struct hlink *e);
/* Any order; fn may free the entry. Leaves the table empty. */
void htab_drain(struct htab *t, void (*fn)(struct hlink *e, void *arg), void *arg);
