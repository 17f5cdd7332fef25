// SPDX-License-Identifier: Apache-2.0
#include "first_names.h"

#include <stdlib.h>

struct first_name {
	struct hlink link;
	uint16_t layer;
	dev_t dev; /* a file system mounted inside a layer, or a subvolume, reuses inode numbers */
	ino_t ino;
	const char *path;
};

const char *first_names_of(struct first_names *f, const struct diff_entry *e, const struct stat *st)
{
	struct first_name *n;

	for (struct hlink *l = htab_first(&f->names, st->st_ino); l; l = htab_next(l)) {
		n = container_of(l, struct first_name, link);
		if (n->ino == st->st_ino && n->dev == st->st_dev &&
		    n->layer == e->image_entry->layer)
			return n->path;
	}
	n = malloc(sizeof(*n));
	if (!n)
		return NULL;
	*n = (struct first_name){ .layer = e->image_entry->layer,
				  .dev = st->st_dev,
				  .ino = st->st_ino,
				  .path = e->path };
	if (htab_insert(&f->names, &n->link, st->st_ino) < 0)
		free(n);
	return NULL;
}

static void free_name(struct hlink *l, void *arg)
{
	(void)arg;
	free(container_of(l, struct first_name, link));
}

void first_names_release(struct first_names *f)
{
	htab_drain(&f->names, free_name, NULL);
	htab_release(&f->names);
}
