// SPDX-License-Identifier: Apache-2.0
/* The paths of an entry of an image: in the image, and in each of its layers. */
#include "image-internal.h"

#include <stdlib.h>
#include <string.h>

/* base, and the names from below top (NULL: the root) down to e. */
static char *join_path(const char *base, const struct image_entry *top, const struct image_entry *e)
{
	size_t len = strlen(base);
	char *path, *p;

	for (const struct image_entry *i = e; i->parent && i != top; i = i->parent)
		len += strlen(i->name) + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	p = path + len;
	*p = '\0';
	for (const struct image_entry *i = e; i->parent && i != top; i = i->parent) {
		size_t n = strlen(i->name);

		p -= n;
		memcpy(p, i->name, n);
		*--p = '/';
	}
	memcpy(path, base, strlen(base));
	if (*path == '/')
		memmove(path, path + 1, len);
	return path;
}

char *image_path(const struct image_entry *e)
{
	return join_path("", NULL, e);
}

const char *image_top_name(const struct image_entry *e)
{
	while (e->parent && e->parent->parent)
		e = e->parent;
	return e->name;
}

/* The path of a directory in a layer that a redirect brought in; NULL: its own path. */
static const char *redirected_path(const struct image_dir *d, uint16_t layer)
{
	size_t low = 0, high = d ? d->redirected.n : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (d->redirected.layers[mid] == layer)
			return d->redirected.paths[mid];
		if (d->redirected.layers[mid] < layer)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

char *image_path_in_layer(const struct image_entry *e, uint16_t layer)
{
	const struct image_entry *top = e->parent;
	const char *base = NULL;

	while (top) {
		base = redirected_path(top->dir, layer);
		if (base)
			break;
		top = top->parent;
	}
	return join_path(base ? base : "", top, e);
}

char *image_layer_path(const struct image_entry *e)
{
	return image_path_in_layer(e, e->layer);
}
