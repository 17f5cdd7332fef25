// SPDX-License-Identifier: Apache-2.0
#include "veneer/jobs/readdir_ahead.h"

#include "veneer/base/cleanup.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#define QUEUE_MAX      256 /* directories; more are not worth being early for */
#define SIBLINGS_AHEAD 32
#define NICE	       10

struct readdir_ahead {
	struct image *image;
	_Atomic bool is_stopping;
	bool is_busy; /* guarded by ahead.lock: the thread reads one of its directories */
};

/* The worker thread's state: of its own, so that a thread that stops it may wait for it while the
 * next one has begun. */
struct worker {
	pthread_t thread;
	struct readdir_ahead *current; /* whose directory it reads; the thread's own */
	bool is_ending; /* guarded by ahead.lock */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	/* guarded by lock */
	struct {
		struct readdir_ahead *owner;
		struct image_entry *dir;
		bool wants_attributes;
	} queue[QUEUE_MAX];
	size_t head, n;
	unsigned users;
	struct worker *worker; /* NULL without users */
} ahead = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .wake = PTHREAD_COND_INITIALIZER,
	    .done = PTHREAD_COND_INITIALIZER };

static struct image_entry *take(struct worker *me, struct readdir_ahead **ret,
				bool *ret_wants_attributes)
{
	struct image_entry *e;

	LOCK_SCOPE(&ahead.lock);
	if (me->current) {
		me->current->is_busy = false;
		me->current = NULL;
		pthread_cond_broadcast(&ahead.done);
	}
	while (!ahead.n && !me->is_ending)
		pthread_cond_wait(&ahead.wake, &ahead.lock);
	if (me->is_ending)
		return NULL;
	*ret = me->current = ahead.queue[ahead.head].owner;
	me->current->is_busy = true;
	e = ahead.queue[ahead.head].dir;
	*ret_wants_attributes = ahead.queue[ahead.head].wants_attributes;
	ahead.head = (ahead.head + 1) % QUEUE_MAX;
	ahead.n--;
	return e;
}

static void *run(void *arg)
{
	struct worker *me = arg;
	struct readdir_ahead *w;
	struct image_entry *dir;
	bool wants_attributes;
	struct stat st;

	/* Only this thread: the program and the threads that answer it come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while ((dir = take(me, &w, &wants_attributes))) {
		ssize_t n = image_count(w->image, dir);

		if (!wants_attributes)
			continue;
		/* Errors are for callers that ask. */
		for (ssize_t i = 0;
		     i < n && !atomic_load_explicit(&w->is_stopping, memory_order_relaxed); i++)
			image_stat(w->image, image_child(dir, (size_t)i), &st);
	}
	return NULL;
}

static int start_worker_locked(void)
{
	struct worker *me = calloc(1, sizeof(*me));
	int r;

	if (!me)
		return -ENOMEM;
	r = -pthread_create(&me->thread, NULL, run, me);
	if (r < 0)
		free(me);
	else
		ahead.worker = me;
	return r;
}

int readdir_ahead_start(struct image *img, struct readdir_ahead **ret)
{
	struct readdir_ahead *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return -ENOMEM;
	w->image = img;
	pthread_mutex_lock(&ahead.lock);
	if (!ahead.worker)
		r = start_worker_locked();
	if (r == 0)
		ahead.users++;
	pthread_mutex_unlock(&ahead.lock);
	if (r < 0)
		free(w);
	else
		*ret = w;
	return r;
}

static void purge_locked(const struct readdir_ahead *w)
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
	pthread_mutex_lock(&ahead.lock);
	purge_locked(w);
	if (--ahead.users == 0) {
		last = ahead.worker;
		last->is_ending = true;
		ahead.worker = NULL;
		pthread_cond_broadcast(&ahead.wake);
	}
	while (w->is_busy)
		pthread_cond_wait(&ahead.done, &ahead.lock);
	pthread_mutex_unlock(&ahead.lock);
	if (last) {
		pthread_join(last->thread, NULL);
		free(last);
	}
	free(w);
}

/* Queue the directories among children [from, end) that nobody has read yet; once in an entry's
 * life. */
static bool enqueue_locked(struct readdir_ahead *w, struct image_entry *dir, size_t from,
			   size_t end, bool wants_attributes)
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
	/* Being asked to list it, both are loaded. */
	n = (size_t)image_count(w->image, parent);
	own = image_index(dir);
	end = own + 1 + SIBLINGS_AHEAD < n ? own + 1 + SIBLINGS_AHEAD : n;
	pthread_mutex_lock(&ahead.lock);
	is_new = enqueue_locked(w, parent, own + 1, end, wants_attributes);
	if (atomic_load_explicit(&dir->dir, memory_order_acquire))
		is_new |= enqueue_locked(w, dir, 0, (size_t)image_count(w->image, dir),
					 wants_attributes);
	if (is_new)
		pthread_cond_signal(&ahead.wake);
	pthread_mutex_unlock(&ahead.lock);
}
