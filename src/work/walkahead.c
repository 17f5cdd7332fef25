// SPDX-License-Identifier: Apache-2.0
#include "veneer/walkahead.h"

#include "veneer/cleanup.h"

#include <dirent.h>
#include <unistd.h>
#include <sys/resource.h>

#define QUEUE_MAX 256		/* directories; more are not worth being early for */
#define SIBLINGS_AHEAD 32
#define NICE 10

struct walkahead {
	struct image *image;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* guarded by lock */
	struct ient *queue[QUEUE_MAX];
	size_t head, n;
	bool is_stopping;
};

static struct ient *take(struct walkahead *w)
{
	struct ient *e;

	LOCK_SCOPE(&w->lock);
	while (!w->n && !w->is_stopping)
		pthread_cond_wait(&w->wake, &w->lock);
	if (w->is_stopping)
		return NULL;
	e = w->queue[w->head];
	w->head = (w->head + 1) % QUEUE_MAX;
	w->n--;
	return e;
}

static void *run(void *arg)
{
	struct walkahead *w = arg;
	struct ient *dir;
	struct stat st;

	/* Only this thread: the program and those who answer it come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while ((dir = take(w))) {
		ssize_t n = image_count(w->image, dir);

		/* Errors are for those who ask. */
		for (ssize_t i = 0; i < n; i++)
			image_stat(w->image, image_child(dir, (size_t)i), &st);
	}
	return NULL;
}

int walkahead_start(struct image *img, struct walkahead **ret)
{
	struct walkahead *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->image = img;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	r = -pthread_create(&w->thread, NULL, run, w);
	if (r < 0) {
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void walkahead_stop(struct walkahead *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->is_stopping = true;
	pthread_cond_broadcast(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Queue the directories among children [from, end) that nobody has read yet; once in an entry's life. */
static bool enqueue_locked(struct walkahead *w, struct ient *dir, size_t from, size_t end)
{
	bool is_new = false;

	for (size_t i = from; i < end && w->n < QUEUE_MAX; i++) {
		struct ient *e = image_child(dir, i);

		if (e->type != DT_DIR || atomic_load_explicit(&e->dir, memory_order_relaxed) ||
		    atomic_exchange_explicit(&e->is_queued, true, memory_order_relaxed))
			continue;
		w->queue[(w->head + w->n++) % QUEUE_MAX] = e;
		is_new = true;
	}
	return is_new;
}

void walkahead_listed(struct walkahead *w, struct ient *dir)
{
	struct ient *parent = dir->parent;
	size_t n, own;
	bool is_new;

	if (!w)
		return;
	atomic_store_explicit(&dir->is_listed, true, memory_order_relaxed);
	if (!parent || !atomic_load_explicit(&parent->is_listed, memory_order_relaxed))
		return;
	/* Being asked to list it, both are loaded. */
	n = (size_t)image_count(w->image, parent);
	own = image_index(dir);
	pthread_mutex_lock(&w->lock);
	is_new = enqueue_locked(w, parent, own + 1, own + 1 + SIBLINGS_AHEAD < n ? own + 1 + SIBLINGS_AHEAD : n);
	if (atomic_load_explicit(&dir->dir, memory_order_acquire))
		is_new |= enqueue_locked(w, dir, 0, (size_t)image_count(w->image, dir));
	if (is_new)
		pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}
