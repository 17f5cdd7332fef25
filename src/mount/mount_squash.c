// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/mount_squash.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/branch_merge.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define TIDY_TRIES 3 /* in case memory is short */

/* The number of snapshots between the live part and id; -1: the live part does not stand on id. */
static ssize_t place_of(const struct branch_chain *c, uint64_t id)
{
	const struct branch_chain_entry *e = branch_chain_by_id(c, c->head);
	ssize_t n = 0;

	while (e && e->id != id) {
		e = branch_chain_by_id(c, e->parent);
		n++;
	}
	return e ? n : -1;
}

static int plan(struct mount_squash *s, const char *from, const char *to, ssize_t *ret_place)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	int r = branch_dir_load(s->rootfd, &c);

	if (r < 0)
		return r;
	s->ids = calloc(c.n + 1, sizeof(*s->ids));
	if (!s->ids)
		return -ENOMEM;
	r = branch_merge_plan(&c, from, to, s->ids, &s->n);
	if (r == 0)
		*ret_place = place_of(&c, s->ids[0]);
	return r < 0 ? r : *ret_place < 0 ? -ENOTCONN : 0;
}

struct mount_squash_root {
	dev_t dev;
	ino_t ino;
};

/* Open the layers of the mount, from the topmost of the snapshots down. */
static int open_image(struct mount *m, struct mount_squash *s, size_t place)
{
	struct layer *const *layers;
	const size_t n = image_layers(m->tree.image, &layers);

	if (place + s->n > n)
		return -ENOTCONN;
	for (size_t k = 0; k < s->n; k++)
		if (!layers[place + k]->is_snapshot)
			return -ENOTCONN;
	s->roots = calloc(s->n, sizeof(*s->roots));
	if (!s->roots)
		return -ENOMEM;
	for (size_t k = 0; k < s->n; k++)
		s->roots[k] = (struct mount_squash_root){ layers[place + k]->dev,
							  layers[place + k]->ino };
	s->held = layer_registry_again(m->tree.image);
	return image_new(layers + place, n - place, &s->merge.image);
}

static void let_go(struct mount_squash *s)
{
	image_unref(s->merge.image);
	layer_registry_release(s->held);
	s->merge.image = s->held = NULL;
}

static int begin_links(struct mount_squash *s, bool is_seen)
{
	struct layer *const *layers;

	image_layers(s->merge.image, &layers);
	return is_seen ? snapshot_links_begin(layers, s->n, s->merge.to, &s->merge.links) : 0;
}

int mount_squash_begin(struct mount *m, const char *from, const char *to, struct mount_squash *ret)
{
	ssize_t place = 0;
	int r;

	*ret = MOUNT_SQUASH_NONE;
	if (!m->tree.upper || m->is_frozen)
		return -EROFS;
	ret->rootfd = fcntl(m->tree.upper->rootfd, F_DUPFD_CLOEXEC, 3);
	ret->work_fd = fcntl(m->tree.workfd, F_DUPFD_CLOEXEC, 3);
	if (ret->rootfd < 0 || ret->work_fd < 0)
		return -errno;
	ret->style = m->tree.style;
	ret->is_volatile = m->tree.is_volatile;
	r = plan(ret, from, to, &place);
	r = r ?: open_image(m, ret, (size_t)place);
	if (r == 0)
		ret->merge.to = r = branch_merge_begin(ret->rootfd, ret->ids, ret->n);
	ret->is_begun = r > 0;
	return r < 0 ? r : begin_links(ret, !m->opts.is_offline);
}

int mount_squash_fill(struct mount_squash *s,
		      int (*step)(void *arg, const struct snapshot_merge_progress *p), void *arg)
{
	struct snapshot_merge *m = &s->merge;
	int r;

	m->n = s->n;
	m->style = &s->style;
	m->work_fd = s->work_fd;
	m->step = step;
	m->arg = arg;
	r = snapshot_merge_run(m);
	let_go(s);
	return r;
}

/* ---- inodes in use ---- */

struct listed {
	struct inode **v; /* referenced */
	size_t n, cap;
	int error;
};

/* Called with the table's lock. */
static bool list(void *arg, struct inode *i)
{
	struct listed *l = arg;

	if (i->stage == INODE_STALE)
		return false;
	l->error = l->error ?: array_reserve(&l->v, &l->cap, l->n + 1);
	if (!l->error)
		l->v[l->n++] = i;
	return !l->error;
}

static int each(struct mount *m, int (*fn)(struct mount *m, struct inode *i, void *arg), void *arg)
{
	struct listed l = { 0 };
	int r;

	inode_each(&m->tree, list, &l);
	r = l.error;
	for (size_t k = 0; k < l.n; k++) {
		r = r ?: fn(m, l.v[k], arg);
		inode_unref(&m->tree, l.v[k]);
	}
	free(l.v);
	return r;
}

/* Unused inodes are looked up anew. */
static bool is_in_use(struct mount *m, const struct inode *i)
{
	const struct node_slot *s = inode_slot(&m->tree, i->id);

	return s && (s->nlookup || i->n_former) && !s->held_fd;
}

static int find(struct mount *m, struct inode *i, void *arg)
{
	int r = is_in_use(m, i) ? lookup_restore(&m->tree, i) : 0;

	(void)arg;
	return r == -ESTALE ? 0 : r;
}

int mount_squash_settle(struct mount *m)
{
	return each(m, find, NULL);
}

struct range {
	size_t first, n; /* of the mount's layers */
};

static int check(struct mount *m, struct inode *i, void *arg)
{
	const struct range *g = arg;

	if (!is_in_use(m, i))
		return 0;
	if (i->stage == INODE_UNRESOLVED)
		return -EUSERS;
	/* A file that lost its name is found through the layer that hides it, which may be one of
	 * the snapshots. */
	return !inode_is_dir(i) && !inode_has_upper(i) && inode_is_orphan(i) && i->lower &&
			       i->lower->layer > g->first && i->lower->layer < g->first + g->n
		       ? -EUSERS
		       : 0;
}

static bool is_root(const struct layer *l, const struct mount_squash_root *r)
{
	return l->dev == r->dev && l->ino == r->ino;
}

int mount_squash_check(struct mount *m, const struct mount_squash *s)
{
	struct layer *const *layers;
	const size_t n = image_layers(m->tree.image, &layers);
	struct range g = { 0, s->n };

	while (g.first < n && !is_root(layers[g.first], &s->roots[0]))
		g.first++;
	for (size_t k = 0; k < s->n; k++)
		if (g.first + k >= n || !is_root(layers[g.first + k], &s->roots[k]))
			return -ENOTCONN;
	return each(m, check, &g);
}

int mount_squash_publish(struct mount_squash *s)
{
	int r = branch_merge_publish(s->rootfd, s->ids, s->n, s->is_volatile);

	if (r < 0)
		return r;
	s->fresh = r;
	s->is_begun = false;
	s->is_published = true;
	/* Unlock it: it is a snapshot now, and mounts lock it. */
	closep(&s->merge.to);
	return 0;
}

/* Until the tidying is done, files show one link too many. */
static int tidy(const struct mount_squash *s)
{
	int r = -ENOMEM;

	for (int k = 0; k < TIDY_TRIES && r < 0 && r != -EBUSY; k++)
		r = branch_merge_tidy(s->rootfd, s->ids[0]);
	return r;
}

void mount_squash_release(struct mount_squash *s)
{
	int r = s->is_published ? tidy(s) : 0;
	bool is_left = r < 0;

	/* The next mount tidies up if this one cannot. */
	if (r < 0 && r != -EBUSY)
		log_warn("cannot remove the remains of merged snapshots: %s", strerror(-r));
	if (s->is_begun)
		is_left = !branch_merge_cancel(s->rootfd);
	if (is_left)
		snapshot_links_leave(s->merge.links, s->merge.to);
	else
		snapshot_links_end(s->merge.links);
	let_go(s);
	closep(&s->fresh);
	closep(&s->merge.to);
	closep(&s->rootfd);
	closep(&s->work_fd);
	free(s->merge.where);
	free(s->roots);
	free(s->ids);
	*s = MOUNT_SQUASH_NONE;
}

const char *mount_squash_reason(int r)
{
	switch (r) {
	case -ENOENT:
		return "there is no snapshot of this name";
	case -ENOTDIR:
		return "the second snapshot does not stand on the first";
	case -ENOTCONN:
		return "the mount does not stand on these snapshots";
	case -EBUSY:
		return "another snapshot, or the upper, stands on one in between";
	case -EUSERS:
		return "a mount uses one of them: a branch, or one that has the upper as a lower "
		       "layer";
	case -EEXIST:
		return "snapshots of it are being merged already";
	case -EAGAIN:
		return "another snapshot is being taken or removed";
	case -EUCLEAN:
		return "something in it is damaged (veneer check tells more)";
	case -EPROTO:
		return "a newer version wrote the chain of its snapshots";
	case -EROFS:
		return "it has no upper that may be written";
	case -EOPNOTSUPP:
		return "the file system of the upper cannot exchange two names in one step";
	case -ECANCELED:
		return "it was stopped";
	default:
		return strerror(-r);
	}
}
