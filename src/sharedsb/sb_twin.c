// SPDX-License-Identifier: Apache-2.0
/* A member with snapshots has its own image: the layers of its snapshots above the common ones. A
 * file of a common layer is found in the common image by its layer, its path in that layer and its
 * number. */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/union/lookup.h"

#include <dirent.h>

static bool is_same_dir(const struct layer *a, const struct layer *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->override == b->override &&
	       a->is_doubted == b->is_doubted;
}

void sb_twin_compare(struct sb_member *c)
{
	const struct image *common = c->shared_sb->common->tree.image;
	struct layer *const *own_layers, *const *layers;
	const size_t n_own = image_layers(c->m->tree.image, &own_layers);
	const size_t n = image_layers(common, &layers);

	c->n_above = n_own < n ? -1 : (ssize_t)(n_own - n);
	for (size_t k = 0; k < n && c->n_above >= 0; k++)
		if (!is_same_dir(own_layers[(size_t)c->n_above + k], layers[k]))
			c->n_above = -1;
}

static bool is_twin(const struct sb_member *c, struct image_entry *own, struct image_entry *e)
{
	struct union_fs *common = &c->shared_sb->common->tree;

	return e->type == DT_REG && e->layer == own->layer - c->n_above && e->d_ino == own->d_ino &&
	       image_ino(common->image, e) == image_ino(c->m->tree.image, own);
}

/* Frees path. */
static struct image_entry *find_at(const struct sb_member *c, struct image_entry *own, char *path)
{
	struct image_entry *e = NULL;

	if (path && image_lookup_path(c->shared_sb->common->tree.image, path, &e) == 0 &&
	    !is_twin(c, own, e))
		e = NULL;
	free(path);
	return e;
}

/* If no lower layer has a redirect, the common image has the file at its path in the layer, even if
 * a snapshot moved a directory above it. If no snapshot moved a directory, it has it at the
 * member's path. */
static struct image_entry *find_twin(const struct sb_member *c, struct image_entry *own)
{
	struct image_entry *e;

	if (c->n_above < 0 || own->layer < c->n_above)
		return NULL;
	e = find_at(c, own, image_layer_path(own));
	return e ? e : find_at(c, own, image_path(own));
}

struct image_entry *sb_twin_entry(const struct sb_member *c, struct image_entry *own)
{
	return c->m->tree.image == c->shared_sb->common->tree.image ? own : find_twin(c, own);
}

/* A file with several names has one inode for all: after a change, the kernel's other cached names
 * would still lead to the image's file. */
struct image_entry *sb_twin_file(const struct sb_member *c, struct inode *i)
{
	struct stat st;

	if (!inode_is_lower_file(i) || image_stat(c->m->tree.image, inode_lower(i), &st) < 0 ||
	    st.st_nlink != 1)
		return NULL;
	return sb_twin_entry(c, inode_lower(i));
}
