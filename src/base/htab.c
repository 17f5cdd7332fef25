// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/htab.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 16 };

/* Multiplying spreads a hash whose low bits are all alike; nbuckets is a power of two above 1. */
static struct hlink **bucket_of(struct hlink **buckets, size_t nbuckets, uint64_t hash)
{
	int bits = __builtin_ctzll(nbuckets);

	return &buckets[(hash * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits)];
}

void htab_release(struct htab *t)
{
	free(t->buckets);
	*t = (struct htab){ 0 };
}

static int resize(struct htab *t, size_t nbuckets)
{
	struct hlink **buckets = calloc(nbuckets, sizeof(*buckets));

	if (!buckets)
		return -ENOMEM;
	for (size_t i = 0; i < t->nbuckets; i++) {
		struct hlink *next;

		for (struct hlink *e = t->buckets[i]; e; e = next) {
			struct hlink **head = bucket_of(buckets, nbuckets, e->hash);

			next = e->next;
			e->next = *head;
			*head = e;
		}
	}
	free(t->buckets);
	t->buckets = buckets;
	t->nbuckets = nbuckets;
	return 0;
}

void htab_reserve(struct htab *t, size_t count)
{
	size_t nbuckets = t->nbuckets ? t->nbuckets : FIRST_BUCKETS;

	while (nbuckets < count)
		nbuckets *= 2;
	if (nbuckets > t->nbuckets)
		(void)resize(t, nbuckets);
}

int htab_insert(struct htab *t, struct hlink *e, uint64_t hash)
{
	if (t->count >= t->nbuckets) {
		int r = resize(t, t->nbuckets ? t->nbuckets * 2 : FIRST_BUCKETS);

		if (r < 0 && !t->nbuckets)
			return r;
	}

	struct hlink **head = bucket_of(t->buckets, t->nbuckets, hash);

	e->hash = hash;
	e->next = *head;
	*head = e;
	t->count++;
	return 0;
}

void htab_remove(struct htab *t, struct hlink *e)
{
	if (!t->nbuckets)
		return;
	for (struct hlink **p = bucket_of(t->buckets, t->nbuckets, e->hash); *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			e->next = NULL;
			t->count--;
			return;
		}
	}
}

static struct hlink *skip_to(struct hlink *e, uint64_t hash)
{
	while (e && e->hash != hash)
		e = e->next;
	return e;
}

struct hlink *htab_first(const struct htab *t, uint64_t hash)
{
	return t->nbuckets ? skip_to(*bucket_of(t->buckets, t->nbuckets, hash), hash) : NULL;
}

struct hlink *htab_next(const struct hlink *e)
{
	return skip_to(e->next, e->hash);
}

void htab_drain(struct htab *t, void (*fn)(struct hlink *e, void *arg), void *arg)
{
	struct htab old = *t;

	*t = (struct htab){ 0 };
	for (size_t i = 0; i < old.nbuckets; i++) {
		struct hlink *next;

		for (struct hlink *e = old.buckets[i]; e; e = next) {
			next = e->next;
			fn(e, arg);
		}
	}
	free(old.buckets);
}
