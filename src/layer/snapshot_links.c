// SPDX-License-Identifier: Apache-2.0
/* An old layer shows the names of a file without the new ones, and the new layer the new ones. */
#include "veneer/layer/snapshot_links.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/sys/dir_walk.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct made {
	struct hlink link;
	struct made *next; /* of all */
	ino_t ino;
	nlink_t n, left; /* left: counted while some are removed */
};

struct snapshot_links {
	struct list_link all;
	_Atomic unsigned refs;
	struct snapshot_links **before; /* its layers' former lists: a reader may still use them */
	size_t n_before;
	dev_t dev; /* of the new one's root, and its inode number */
	ino_t ino;
	ino_t *old; /* those of the others */
	size_t n_old;
	mutex_t lock; /* held over a link(2), or a stat(2) that may come beside one */
	GUARDED_BY(lock) struct htab made;
	GUARDED_BY(lock) struct made *first; /* of those */
	GUARDED_BY(lock) bool is_over;
	bool is_left; /* the list owns it; under links.lock */
};

static struct {
	mutex_t lock;
	GUARDED_BY(lock) struct list_link all;
} links = { PTHREAD_MUTEX_INITIALIZER, { &links.all, &links.all } };

static struct made *find_locked(struct snapshot_links *l, ino_t ino) REQUIRES(l->lock)
{
	for (struct hlink *e = htab_first(&l->made, ino); e; e = htab_next(e)) {
		struct made *m = container_of(e, struct made, link);

		if (m->ino == ino)
			return m;
	}
	return NULL;
}

static void free_made(struct hlink *e, void *arg)
{
	(void)arg;
	free(container_of(e, struct made, link));
}

static void unref(struct snapshot_links *l)
{
	if (--l->refs)
		return;
	for (size_t k = 0; k < l->n_before; k++)
		unref(l->before[k]);
	free(l->before);
	free(l->old);
	htab_drain(&l->made, free_made, NULL);
	htab_release(&l->made);
	mutex_destroy(&l->lock);
	free(l);
}

static int attach(struct layer *layer, struct snapshot_links *l)
{
	struct snapshot_links *before;

	if (layer->links == l)
		return 0;
	if (array_grow(&l->before, l->n_before) < 0)
		return -ENOMEM;
	l->refs++;
	before = atomic_exchange(&layer->links, l);
	if (before)
		l->before[l->n_before++] = before;
	return 0;
}

int snapshot_links_begin(struct layer *const *layers, size_t n, int to, struct snapshot_links **ret)
{
	struct snapshot_links *l = calloc(1, sizeof(*l));
	struct stat st;

	if (!l)
		return -ENOMEM;
	if (fstat(to, &st) < 0) {
		free(l);
		return -errno;
	}
	l->refs = 1;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	mutex_init(&l->lock);
	LOCK_SCOPE(&links.lock);
	list_add_tail(&links.all, &l->all);
	*ret = l;
	for (size_t k = 0; k < n; k++) {
		if (array_grow(&l->old, l->n_old) < 0 || attach(layers[k], l) < 0)
			return -ENOMEM;
		l->old[l->n_old++] = layers[k]->ino;
	}
	return 0;
}

static int link_plain(int fd, int dirfd, const char *name)
{
	char path[sizeof("/proc/self/fd/") + 3 * sizeof(fd)];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dirfd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static struct made *enter_locked(struct snapshot_links *l, ino_t ino) REQUIRES(l->lock)
{
	struct made *m = find_locked(l, ino);

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->ino = ino;
	if (htab_insert(&l->made, &m->link, ino) == 0) {
		m->next = l->first;
		l->first = m;
		return m;
	}
	free(m);
	return NULL;
}

int snapshot_links_make(struct snapshot_links *l, int fd, int dirfd, const char *name)
{
	struct made *m;
	struct stat st;
	int r;

	if (!l)
		return link_plain(fd, dirfd, name);
	if (fstat(fd, &st) < 0)
		return -errno;
	LOCK_SCOPE(&l->lock);
	m = enter_locked(l, st.st_ino);
	r = m ? link_plain(fd, dirfd, name) : -ENOMEM;
	if (r == 0)
		m->n++;
	return r;
}

void snapshot_links_end(struct snapshot_links *l)
{
	if (!l)
		return;
	mutex_lock(&links.lock);
	list_del(&l->all);
	mutex_unlock(&links.lock);
	mutex_lock(&l->lock);
	l->is_over = true;
	mutex_unlock(&l->lock);
	unref(l);
}

static int count_left(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct snapshot_links *l = arg;
	struct made *m;

	(void)dirfd;
	(void)name;
	if (S_ISDIR(st->st_mode))
		return 1;
	LOCK_SCOPE(&l->lock);
	m = find_locked(l, st->st_ino);
	if (m)
		m->left++;
	return 0;
}

static int miss(void *arg, const char *name, int error)
{
	(void)arg;
	(void)name;
	return error;
}

void snapshot_links_leave(struct snapshot_links *l, int to)
{
	static const struct dir_walk_hooks hooks = { .entry = count_left, .miss = miss };

	if (!l)
		return;
	/* Where they cannot be counted none is taken to be removed. */
	if (to >= 0 && dir_walk(to, &hooks, l) == 0) {
		LOCK_SCOPE(&l->lock);
		for (struct made *m = l->first; m; m = m->next)
			m->n = m->left;
	}
	LOCK_SCOPE(&links.lock);
	l->is_left = true;
}

void snapshot_links_gone(const struct stat *st)
{
	struct snapshot_links *found = NULL;

	mutex_lock(&links.lock);
	for (struct list_link *e = links.all.next; e != &links.all && !found; e = e->next) {
		struct snapshot_links *l = container_of(e, struct snapshot_links, all);

		if (l->is_left && l->dev == st->st_dev && l->ino == st->st_ino)
			found = l;
	}
	if (found)
		found->is_left = false;
	mutex_unlock(&links.lock);
	snapshot_links_end(found);
}

static bool concerns(const struct snapshot_links *l, const struct layer *layer)
{
	bool is_one = l->ino == layer->ino;

	for (size_t k = 0; k < l->n_old; k++)
		is_one = is_one || l->old[k] == layer->ino;
	return is_one && l->dev == layer->dev;
}

void snapshot_links_attach(struct layer *layer)
{
	LOCK_SCOPE(&links.lock);
	for (struct list_link *e = links.all.next; e != &links.all; e = e->next) {
		struct snapshot_links *l = container_of(e, struct snapshot_links, all);

		/* Without memory a file shows more names for a while. */
		if (concerns(l, layer))
			(void)attach(layer, l);
	}
}

void snapshot_links_detach(struct layer *layer)
{
	struct snapshot_links *l = atomic_exchange(&layer->links, NULL);

	if (l)
		unref(l);
}

static void correct_locked(struct snapshot_links *l, const struct layer *layer, struct stat *st)
	REQUIRES(l->lock)
{
	const struct made *m = l->is_over || S_ISDIR(st->st_mode) ? NULL
								  : find_locked(l, st->st_ino);

	if (!m || !m->n)
		return;
	if (layer->ino == l->ino && layer->dev == l->dev)
		st->st_nlink = m->n;
	else
		st->st_nlink = st->st_nlink > m->n ? st->st_nlink - m->n : 1;
}

int snapshot_links_stat(struct layer *layer, int dirfd, const char *name, struct stat *ret)
{
	struct snapshot_links *l = layer->links;
	int r;

	if (!l)
		return fstatat(dirfd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	LOCK_SCOPE(&l->lock);
	r = fstatat(dirfd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	if (r == 0)
		correct_locked(l, layer, ret);
	return r;
}
