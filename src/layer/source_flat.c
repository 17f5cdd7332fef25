// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/source_flat.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* A file that was changed since the clock of its change time last moved looks unchanged. */
#define SETTLED_S 2

/* One file of a chain. A layer is part of it because its map is: the same file, linked into another
 * layer, may show other bytes there. */
struct part {
	dev_t dev, layer_dev;
	ino_t ino, layer_ino;
	off_t size;
	struct timespec ctime;
	file_id_t id;
};

struct source_flat {
	struct list_link link;
	unsigned refs; /* sources */
	int fd; /* for reading */
	size_t n;
	struct part parts[];
};

static struct {
	mutex_t lock;
	GUARDED_BY(lock) struct list_link copies;
	_Atomic size_t n; /* written under the lock */
} table = { PTHREAD_MUTEX_INITIALIZER, { &table.copies, &table.copies }, 0 };

static int look_at(struct source *s, struct part *ret)
{
	struct stat st;
	int fd = source_pin(s), r;

	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	fd_cache_unpin(&s->fd);
	/* A mount inside the layer may go, and another have its number. */
	if (r == 0 && st.st_dev != s->layer->dev)
		r = -EXDEV;
	if (r == 0)
		*ret = (struct part){ .dev = st.st_dev,
				      .layer_dev = s->layer->dev,
				      .ino = st.st_ino,
				      .layer_ino = s->layer->ino,
				      .size = st.st_size,
				      .ctime = st.st_ctim,
				      .id = s->id };
	return r;
}

static bool is_same(const struct part *a, const struct part *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->id == b->id &&
	       a->layer_dev == b->layer_dev && a->layer_ino == b->layer_ino &&
	       a->ctime.tv_sec == b->ctime.tv_sec && a->ctime.tv_nsec == b->ctime.tv_nsec;
}

static bool is_same_chain(const struct source_flat *a, const struct source_flat *b)
{
	if (a->n != b->n)
		return false;
	for (size_t k = 0; k < a->n; k++)
		if (!is_same(&a->parts[k], &b->parts[k]))
			return false;
	return true;
}

bool source_flat_is_possible(const struct source *s)
{
	for (; s; s = s->below)
		if (!s->layer->is_mappable)
			return false;
	return true;
}

static int look_at_chain(struct source *s, struct source_flat **ret)
{
	struct source_flat *f;
	size_t n = 0;
	int r = 0;

	if (!source_flat_is_possible(s))
		return -EXDEV;
	for (struct source *i = s; i; i = i->below)
		n++;
	f = calloc(1, sizeof(*f) + n * sizeof(*f->parts));
	if (!f)
		return -ENOMEM;
	f->fd = -1;
	list_init(&f->link);
	for (; r == 0 && f->n < n; s = s->below)
		r = look_at(s, &f->parts[f->n++]);
	if (r < 0)
		free(f);
	else
		*ret = f;
	return r;
}

int source_flat_new(struct source *s, struct source_flat **ret)
{
	struct source_flat *f;
	struct timespec now;
	int r = look_at_chain(s, &f);

	if (r < 0)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t k = 0; k < f->n && r == 0; k++)
		r = f->parts[k].ctime.tv_sec > now.tv_sec - SETTLED_S ? -EAGAIN : 0;
	if (r < 0)
		free(f);
	else
		*ret = f;
	return r;
}

int source_flat_check(struct source *s, const struct source_flat *f)
{
	for (size_t k = 0; k < f->n; k++, s = s->below) {
		struct part now;
		int r = s ? look_at(s, &now) : -ENOENT;

		if (r < 0)
			return r;
		if (!is_same(&now, &f->parts[k]))
			return -ENOENT;
	}
	return s ? -ENOENT : 0;
}

off_t source_flat_size(const struct source_flat *f)
{
	return f->parts[0].size;
}

size_t source_flat_count(void)
{
	return table.n;
}

bool source_flat_is_there(const struct source *s)
{
	return atomic_load_explicit(&s->flat, memory_order_relaxed);
}

void source_flat_free(struct source_flat *f)
{
	if (f)
		closep(&f->fd);
	free(f);
}

static void unref(struct source_flat *f)
{
	mutex_lock(&table.lock);
	if (--f->refs) {
		mutex_unlock(&table.lock);
		return;
	}
	list_del(&f->link);
	table.n--;
	mutex_unlock(&table.lock);
	source_flat_free(f);
}

/* s has none any more. */
static void drop(struct source *s)
{
	struct source_flat *f = atomic_exchange(&s->flat, NULL);

	if (f)
		unref(f);
}

/* f is referenced for it. */
static void attach(struct source *s, struct source_flat *f)
{
	struct source_flat *none = NULL;

	s->drop_flat = drop;
	if (!atomic_compare_exchange_strong(&s->flat, &none, f))
		unref(f);
}

void source_flat_publish(struct source *s, struct source_flat *f, int fd)
{
	f->fd = fd;
	f->refs = 1;
	mutex_lock(&table.lock);
	list_add_tail(&table.copies, &f->link);
	table.n++;
	mutex_unlock(&table.lock);
	attach(s, f);
}

/* One like this, referenced; NULL: none. */
static struct source_flat *find(const struct source_flat *like)
{
	LOCK_SCOPE(&table.lock);
	for (struct list_link *l = table.copies.next; l != &table.copies; l = l->next) {
		struct source_flat *f = container_of(l, struct source_flat, link);

		if (is_same_chain(f, like)) {
			f->refs++;
			return f;
		}
	}
	return NULL;
}

/* Attach one that another source of the same chain has. */
static int find_for(struct source *s)
{
	struct source_flat *like, *f;
	int r = table.n ? look_at_chain(s, &like) : -ENOENT;

	if (r < 0)
		return r;
	f = find(like);
	free(like);
	if (!f)
		return -ENOENT;
	attach(s, f);
	return 0;
}

int source_flat_fd(struct source *s)
{
	struct source_flat *f = atomic_load_explicit(&s->flat, memory_order_acquire);
	int r;

	if (!f) {
		r = find_for(s);
		if (r < 0)
			return r;
		f = atomic_load_explicit(&s->flat, memory_order_acquire);
	}
	r = source_flat_check(s, f);
	return r < 0 ? r : f->fd;
}
