// SPDX-License-Identifier: Apache-2.0
#include "veneer/jobs/readdir_ahead.h"

#include "mount_registry.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/sys/worker.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#define QUEUE_MAX      256 /* directories */
#define SIBLINGS_AHEAD 32
#define NICE	       10

struct readdir_ahead {
	struct mount_registry_member member;
	struct image *image;
	_Atomic bool is_stopping;
};

static struct {
	struct mount_registry mounts;
	GUARDED_BY(mounts.lock) struct {
		struct readdir_ahead *owner;
		struct image_entry *dir;
		bool wants_attributes;
	} queue[QUEUE_MAX];
	GUARDED_BY(mounts.lock) size_t head, n;
	GUARDED_BY(mounts.lock) struct worker *worker; /* NULL without users */
} ahead = { .mounts = MOUNT_REGISTRY_INIT(ahead.mounts) };

/* The next directory; NULL: none. Unpins the owner of the last one, *of (NULL: none), and pins its
 * own. */
static struct image_entry *take(const struct worker *me, struct readdir_ahead **of,
				bool *ret_wants_attributes)
{
	struct image_entry *e;

	LOCK_SCOPE(&ahead.mounts.lock);
	if (*of) {
		mount_registry_unpin(&ahead.mounts, &(*of)->member);
		*of = NULL;
	}
	/* Another worker reads the directories queued since the last mount left. */
	if (!ahead.n || me != ahead.worker)
		return NULL;
	*of = ahead.queue[ahead.head].owner;
	(*of)->member.is_pinned = true;
	e = ahead.queue[ahead.head].dir;
	*ret_wants_attributes = ahead.queue[ahead.head].wants_attributes;
	ahead.head = (ahead.head + 1) % QUEUE_MAX;
	ahead.n--;
	return e;
}

/* A program that asks for it gets the error. ls -l asks for an ACL, too; that is left to it where
 * the answer comes from another machine. */
static void read_attributes(struct image *img, struct image_entry *e)
{
	struct layer *const *layers;
	struct stat st;

	image_layers(img, &layers);
	if (image_stat(img, e, &st) == 0 && layers[e->layer]->is_mappable)
		image_is_plain(img, e);
}

static void read_queued(const struct worker *me)
{
	struct readdir_ahead *w = NULL;
	struct image_entry *dir;
	bool wants_attributes;

	while ((dir = take(me, &w, &wants_attributes))) {
		ssize_t n = image_count(w->image, dir);

		if (!wants_attributes)
			continue;
		for (ssize_t i = 0;
		     i < n && !atomic_load_explicit(&w->is_stopping, memory_order_relaxed); i++)
			read_attributes(w->image, image_child(dir, (size_t)i));
	}
}

static void run(struct worker *me, void *arg)
{
	(void)arg;
	/* This thread alone: the program and the threads that answer it come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (worker_wait(me, WORKER_NO_LIMIT))
		read_queued(me);
}

int readdir_ahead_start(struct image *img, struct readdir_ahead **ret)
{
	struct readdir_ahead *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return -ENOMEM;
	w->image = img;
	mutex_lock(&ahead.mounts.lock);
	if (!ahead.worker)
		r = worker_start(run, NULL, &ahead.worker);
	if (r == 0)
		mount_registry_enter(&ahead.mounts, &w->member);
	mutex_unlock(&ahead.mounts.lock);
	if (r < 0)
		free(w);
	else
		*ret = w;
	return r;
}

static void purge_locked(const struct readdir_ahead *w) REQUIRES(ahead.mounts.lock)
{
	size_t kept = 0;

	for (size_t i = 0; i < ahead.n; i++) {
		size_t from = (ahead.head + i) % QUEUE_MAX, to = (ahead.head + kept) % QUEUE_MAX;

		if (ahead.queue[from].owner == w)
			continue;
		ahead.queue[to] = ahead.queue[from];
		kept++;
	}
	ahead.n = kept;
}

void readdir_ahead_stop(struct readdir_ahead *w)
{
	struct worker *last = NULL;

	if (!w)
		return;
	atomic_store_explicit(&w->is_stopping, true, memory_order_relaxed);
	mutex_lock(&ahead.mounts.lock);
	purge_locked(w);
	mount_registry_leave(&ahead.mounts, w->member.number);
	if (list_is_empty(&ahead.mounts.members))
		last = steal_ptr(&ahead.worker);
	mutex_unlock(&ahead.mounts.lock);
	worker_stop(last);
	free(w);
}

/* Queue the directories among children [from, end) that were not read yet, each once. */
static bool enqueue_locked(struct readdir_ahead *w, struct image_entry *dir, size_t from,
			   size_t end, bool wants_attributes) REQUIRES(ahead.mounts.lock)
{
	bool is_new = false;

	for (size_t i = from; i < end && ahead.n < QUEUE_MAX; i++) {
		struct image_entry *e = image_child(dir, i);

		if (e->type != DT_DIR || atomic_load_explicit(&e->dir, memory_order_relaxed) ||
		    atomic_exchange_explicit(&e->is_queued, true, memory_order_relaxed))
			continue;
		ahead.queue[(ahead.head + ahead.n) % QUEUE_MAX].owner = w;
		ahead.queue[(ahead.head + ahead.n) % QUEUE_MAX].wants_attributes = wants_attributes;
		ahead.queue[(ahead.head + ahead.n++) % QUEUE_MAX].dir = e;
		is_new = true;
	}
	return is_new;
}

void readdir_ahead_listed(struct readdir_ahead *w, struct image_entry *dir, bool wants_attributes)
{
	struct image_entry *parent = dir->parent;
	size_t n, own, end;
	bool is_new;

	if (!w)
		return;
	atomic_store_explicit(&dir->is_listed, true, memory_order_relaxed);
	if (!parent || !atomic_load_explicit(&parent->is_listed, memory_order_relaxed))
		return;
	/* Both are loaded, as the directory is being listed. */
	n = (size_t)image_count(w->image, parent);
	own = image_index(dir);
	end = own + 1 + SIBLINGS_AHEAD < n ? own + 1 + SIBLINGS_AHEAD : n;
	mutex_lock(&ahead.mounts.lock);
	is_new = enqueue_locked(w, parent, own + 1, end, wants_attributes);
	if (atomic_load_explicit(&dir->dir, memory_order_acquire))
		is_new |= enqueue_locked(w, dir, 0, (size_t)image_count(w->image, dir),
					 wants_attributes);
	if (is_new)
		worker_wake(ahead.worker);
	mutex_unlock(&ahead.mounts.lock);
}
