// SPDX-License-Identifier: Apache-2.0
#include "dir_merge.h"

#include "veneer/base/array.h"
#include "veneer/base/hash.h"

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
