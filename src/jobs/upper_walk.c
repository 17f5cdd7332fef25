// SPDX-License-Identifier: Apache-2.0
/* The names of a directory are read when the walk enters it, so that they may change during the
 * walk. The path is on the heap, since a container decides how deep it is. */
#include "veneer/jobs/upper_walk.h"

#include "veneer/base/array.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <string.h>

/* A directory of the path, and the upper's names in it that are still to be visited. */
struct level {
	struct inode *dir; /* referenced, unless it is the root */
	struct buf names;
	size_t at;
};

struct walk {
	struct union_fs *t;
	const struct upper_walk_hooks *hooks;
	void *arg;
	struct level *levels;
	size_t depth, cap;
};

static void unref_dir(struct walk *w, struct inode *i)
{
	if (i != w->t->root)
		inode_unref(w->t, i);
}

static int add_name(void *arg, const char *name, const struct upper_dir_entry *e)
{
	struct level *l = arg;

	return e->is_whiteout ? 0 : buf_put(&l->names, name, strlen(name) + 1);
}

static int list_names(struct walk *w, struct level *l)
{
	struct upper_dir *d;
	int r = upper_listing(w->t, l->dir, &d);

	if (r == 0)
		return upper_dir_each(d, add_name, l);
	return r == -ENOMEM ? r : w->hooks->miss(w->arg, l->dir, ".", r);
}

static int push(struct walk *w, struct inode *dir)
{
	int r = array_reserve(&w->levels, &w->cap, w->depth + 1);

	if (r == 0)
		w->levels[w->depth++] = (struct level){ .dir = dir };
	return r;
}

/* Takes over the reference of dir, also on failure. */
static int enter(struct walk *w, struct inode *parent, const char *name, struct inode *dir)
{
	int r = w->hooks->enter ? w->hooks->enter(w->arg, parent, name, dir) : 1;

	if (r > 0)
		r = push(w, dir) ?: 1;
	if (r <= 0) {
		unref_dir(w, dir);
		return r;
	}
	return list_names(w, &w->levels[w->depth - 1]);
}

static int visit(struct walk *w, struct inode *dir, const char *name)
{
	struct inode *i;
	struct stat st;
	int r = lookup_name(w->t, dir, name, &i, &st);

	if (r < 0)
		return w->hooks->miss(w->arg, dir, name, r);
	if (inode_is_dir(i) && inode_has_upper(i))
		return enter(w, dir, name, i);
	r = inode_has_upper(i) ? w->hooks->entry(w->arg, dir, name, i) : 0;
	unref_dir(w, i);
	return r;
}

static int leave(struct walk *w)
{
	struct level *l = &w->levels[--w->depth];
	int r = w->hooks->leave ? w->hooks->leave(w->arg, l->dir) : 0;

	unref_dir(w, l->dir);
	buf_release(&l->names);
	return r;
}

int upper_walk(struct union_fs *t, const struct upper_walk_hooks *hooks, void *arg)
{
	struct walk w = { .t = t, .hooks = hooks, .arg = arg };
	int r = enter(&w, NULL, NULL, t->root);

	while (r == 0 && w.depth) {
		struct level *l = &w.levels[w.depth - 1];
		const char *name = buf_next_text(&l->names, &l->at);

		r = name ? visit(&w, l->dir, name) : leave(&w);
	}
	while (w.depth) {
		struct level *l = &w.levels[--w.depth];

		unref_dir(&w, l->dir);
		buf_release(&l->names);
	}
	free(w.levels);
	return r;
}
