// SPDX-License-Identifier: Apache-2.0
#include "dir_merge.h"

#include "veneer/base/array.h"
#include "veneer/base/hash.h"
#include "veneer/base/listing_place.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct draft *find_draft(struct dir_merge *m, const char *name, uint64_t hash)
{
	for (struct hlink *l = htab_first(&m->drafts, hash); l; l = htab_next(l)) {
		struct draft *d = container_of(l, struct draft, link);

		if (!strcmp(d->name, name))
			return d;
	}
	return NULL;
}

static struct draft *add_draft(struct dir_merge *m, const char *name, uint64_t hash)
{
	size_t len = strlen(name) + 1;
	struct draft *d = calloc(1, sizeof(*d) + len);

	if (!d)
		return NULL;
	d->name = memcpy(d + 1, name, len);
	if (htab_insert(&m->drafts, &d->link, hash) < 0) {
		free(d);
		return NULL;
	}
	*m->tail = d;
	m->tail = &d->next;
	return d;
}

static int draft_add_layer(struct draft *d, uint16_t layer)
{
	int r = array_grow(&d->layers, d->nlayers);

	if (r == 0)
		d->layers[d->nlayers++] = layer;
	return r;
}

static int hide(struct dir_merge *m, const char *name)
{
	uint64_t hash = hash_key(name, strlen(name), 0);
	struct draft *d = find_draft(m, name, hash);

	if (!d) {
		d = add_draft(m, name, hash);
		if (!d)
			return -ENOMEM;
		d->is_hidden = true;
	}
	d->is_renewed |= m->is_snapshot && !d->is_hidden;
	d->is_closed = true;
	return 0;
}

static int show(struct dir_merge *m, const char *name, const struct dir_listing_entry *e,
		uint16_t layer)
{
	uint64_t hash = hash_key(name, strlen(name), 0);
	struct draft *d = find_draft(m, name, hash);

	if (!d) {
		d = add_draft(m, name, hash);
		if (!d)
			return -ENOMEM;
		d->type = e->type;
		d->ino = e->ino;
		d->is_closed = e->type != DT_DIR && e->type != DT_REG;
		return draft_add_layer(d, layer);
	}
	if (d->is_closed)
		return 0;
	if (e->type != d->type) {
		d->is_closed = true;
		return 0;
	}
	return draft_add_layer(d, layer);
}

/* One layer's listing into the merge: ".wh.NAME" hides NAME in its own layer too, so it goes first;
 * a whiteout device is the entry of that name itself. */
int dir_merge_add(struct dir_merge *m, const struct dir_listing *l, uint16_t layer)
{
	for (size_t i = 0; i < l->n; i++) {
		int r = l->entries[i].is_hiding ? hide(m, dir_listing_name(l, &l->entries[i])) : 0;

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < l->n; i++) {
		const struct dir_listing_entry *e = &l->entries[i];
		int r = 0;

		if (e->is_whiteout)
			r = hide(m, dir_listing_name(l, e));
		else if (!e->is_hiding)
			r = show(m, dir_listing_name(l, e), e, layer);
		if (r < 0)
			return r;
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct draft *d = *(struct draft *const *)a, *e = *(struct draft *const *)b;

	if (d->place != e->place)
		return d->place < e->place ? -1 : 1;
	/* The older one keeps its place. */
	if (d->layers[0] != e->layers[0])
		return d->layers[0] > e->layers[0] ? -1 : 1;
	return strcmp(d->name, e->name);
}

/* Names that snapshots hide keep their places. */
static uint32_t place_lower(struct dir_merge *m)
{
	uint32_t n = 0;

	for (struct draft *d = m->lower->first; d; d = d->next) {
		struct draft *seen;

		if (d->is_hidden)
			continue;
		seen = find_draft(m, d->name, hash_key(d->name, strlen(d->name), 0));
		if (seen && !seen->is_renewed)
			seen->place = n + 1;
		n++;
	}
	return n;
}

static void place_others(struct draft **v, size_t n, uint32_t nlower)
{
	uint32_t free = 0;

	for (size_t k = 0; k < n; k++)
		v[k]->place = v[k]->place ? v[k]->place - 1
					  : nlower + listing_place(hash_key(v[k]->name,
									    strlen(v[k]->name), 0),
								   false);
	qsort(v, n, sizeof(struct draft *), by_place);
	for (size_t k = 0; k < n; k++) {
		if (v[k]->place >= nlower && v[k]->place < free)
			v[k]->place = free;
		if (v[k]->place >= nlower)
			free = v[k]->place + LISTING_PLACE_STEP;
	}
}

int dir_merge_order(struct dir_merge *m, struct draft ***ret, size_t *ret_n, size_t *ret_nlower)
{
	struct draft **v = calloc(m->drafts.count + 1, sizeof(struct draft *));
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	*ret_nlower = m->lower ? place_lower(m) : 0;
	for (struct draft *d = m->first; d; d = d->next)
		if (!d->is_hidden)
			v[n++] = d;
	if (m->lower)
		place_others(v, n, (uint32_t)*ret_nlower);
	else
		*ret_nlower = n;
	*ret = v;
	*ret_n = n;
	return 0;
}

static void free_draft(struct hlink *l, void *arg)
{
	struct draft *d = container_of(l, struct draft, link);

	(void)arg;
	free(d->layers);
	free(d);
}

void dir_merge_release(struct dir_merge *m)
{
	htab_drain(&m->drafts, free_draft, NULL);
	htab_release(&m->drafts);
}
