// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/layer_stack.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"

#include <string.h>

void layer_stack_release(struct layer_stack *s)
{
	while (s->n > 0)
		layer_unref(s->v[--s->n]);
	free(s->v);
	*s = (struct layer_stack){ 0 };
}

/* layer is taken over, also on failure. */
static int put(struct layer_stack *s, struct layer *layer)
{
	if (array_reserve(&s->v, &s->cap, s->n + 1) < 0) {
		layer_unref(layer);
		return -ENOMEM;
	}
	s->v[s->n++] = layer;
	return 0;
}

/* note: marks its kind. */
static int put_snapshot(struct layer_stack *s, const struct layer *of, uint64_t id,
			void (*note)(struct layer *l))
{
	_cleanup_(freep) char *path = branch_dir_path(of->path, id);
	struct layer *layer;
	int fd = path ? branch_dir_open(of->rootfd, id) : -ENOMEM;
	int k = fd < 0 ? fd : layer_open_fd(fd, path, &layer);

	if (k < 0)
		return k;
	note(layer);
	return put(s, layer);
}

static int say(const struct layer *of, int k)
{
	if (k < 0)
		log_error("cannot open the snapshots in %s: %s", of->path,
			  k == -EUCLEAN ? "their chain is damaged" : strerror(-k));
	return k;
}

/* Add `id` and the snapshots below it, down to `until`. */
static int put_chain(struct layer_stack *s, const struct layer *of, const struct branch_chain *c,
		     uint64_t id, uint64_t until)
{
	const size_t n = branch_chain_below(c, id, NULL);
	_cleanup_(freep) uint64_t *ids = calloc(n + 1, sizeof(*ids));
	int k = ids ? 0 : -ENOMEM;

	if (ids && n)
		branch_chain_below(c, id, ids);
	for (size_t i = 0; k == 0 && i < n && ids[i] != until; i++)
		k = put_snapshot(s, of, ids[i], layer_note_snapshot);
	return k;
}

/* Add the snapshots below the live part of a layer. */
static int put_below_live(struct layer_stack *s, const struct layer *of)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	uint64_t pending = 0;
	int k = branch_dir_load(of->rootfd, &c);

	k = k == -ENOENT ? 0 : k;
	k = k ?: branch_dir_pending(of->rootfd, &c, &pending);
	if (pending)
		k = k ?: put_snapshot(s, of, pending, layer_note_rest);
	return say(of, k ?: put_chain(s, of, &c, c.head, 0));
}

static int put_live(struct layer_stack *s, const char *path, const char *what)
{
	struct layer *layer;
	int k = layer_open(path, &layer);

	if (k < 0) {
		log_error("cannot open %s%s: %s", what, path, strerror(-k));
		return k;
	}
	k = put(s, layer);
	return k ?: put_below_live(s, layer);
}

int layer_stack_put_upper(struct layer_stack *s, const char *path)
{
	return put_live(s, path, "");
}

int layer_stack_put_lower(struct layer_stack *s, const char *path)
{
	return put_live(s, path, "lowerdir ");
}

int layer_stack_put_snapshots(struct layer_stack *s, const char *path, uint64_t id, uint64_t until)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	const size_t first = s->n;
	struct layer *of;
	int k = layer_open(path, &of);

	if (k < 0) {
		log_error("cannot open %s: %s", path, strerror(-k));
		return k;
	}
	k = branch_dir_load(of->rootfd, &c);
	k = k == -ENOENT && !id ? 0 : k;
	k = k ?: put_chain(s, of, &c, id, until);
	for (size_t i = first; k == 0 && i < s->n; i++)
		k = branch_dir_hold(s->v[i]->rootfd);
	say(of, k);
	layer_unref(of);
	return k;
}
