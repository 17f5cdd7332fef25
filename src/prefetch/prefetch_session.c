// SPDX-License-Identifier: Apache-2.0
/* States of a mount's prefetch session; each is entered once and in this order. The writer thread
 * enters all but the first and the last:
 *
 * ASKED      another process opens its state directory
 * LOADED     the image's profile is here, or will not come (is_off); reading ahead may have begun
 * COLLECTED  the window or the mount has ended and the trace is collected; the image is not
 *            needed any more
 * STORED     the trace is in the profile; the struct goes with the mount
 *
 * Invariants:
 * 1. Only prefetch_session_start, the I/O threads, and collect() while is_collecting use the image
 *    and the stats. prefetch_session_stop ends the one and waits for the other, and neither begins
 *    once is_stopped.
 * 2. The writer alone uses the profile, without the lock. A directory that does not answer stops
 *    the writer, and with it the learning of this process, and nothing else.
 * 3. A session is in the list from its start until it is STORED; the list and its mount hold one
 *    reference each. */
#include "veneer/prefetch/prefetch_session.h"

#include "prefetch_io.h"
#include "trace_collect.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/prefetch/planner.h"
#include "veneer/prefetch/state_dir.h"
#include "veneer/sys/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define WAITING_MAX  1024u /* mounts in the list; others do not take part */
#define FILES_MAX    4096u /* of a plan */
#define BYTES_MAX    (256ull << 20)
#define DIR_LIMIT_MS 10000 /* for the state directory to be opened */
#define DIR_STEP_MS  10
#define LABEL_MAX    256
#define NICE	     10
#define ERR_SIZE     256

enum step { ASKED, LOADED, COLLECTED, STORED };

static struct {
	mutex_t lock;
	pthread_cond_t wake, done;
	GUARDED_BY(lock) struct list_link list;
	GUARDED_BY(lock) size_t n;
	GUARDED_BY(lock) bool is_running;
} writer = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
	.list = { &writer.list, &writer.list },
};

struct prefetch_session {
	struct list_link link;
	struct prefetch_session_config config;
	struct trace *trace;
	char label[LABEL_MAX];
	uint64_t *layers;
	struct profile_stack stack;
	uint64_t image_key;
	int64_t begin_ms;
	int dir; /* the writer's; -1 */
	_Atomic bool is_off;

	GUARDED_BY(writer.lock) enum step step;
	GUARDED_BY(writer.lock) unsigned refs;
	GUARDED_BY(writer.lock) bool is_stopped, is_collecting;
	GUARDED_BY(writer.lock) struct prefetch_io *io;

	/* The plan, and whether this or a sibling has it fetched: the writer's until LOADED,
	 * constant then. The collected notes: the thread that set is_collecting, then the
	 * writer. */
	struct plan plan;
	bool is_fetched;
	struct trace_collect collected;
};

static struct prefetch_session *learning_of(struct list_link *l)
{
	return container_of(l, struct prefetch_session, link);
}

static void unref_locked(struct prefetch_session *l) REQUIRES(writer.lock)
{
	if (--l->refs)
		return;
	closep(&l->config.state_fd);
	closep(&l->dir);
	planner_release(&l->plan);
	trace_collect_release(&l->collected);
	trace_free(l->trace);
	free(l->layers);
	free(l);
}

/* ---- the steps, without the lock ---- */

/* Log one line for each reason, however many mounts it is the reason of. */
static void turn_off(struct prefetch_session *l, int r, const char *why)
{
	static char last[ERR_SIZE]; /* the writer's */
	char text[ERR_SIZE];

	snprintf(text, sizeof(text), "%s", *why ? why : strerror(-r));
	l->is_off = true;
	if (!strcmp(text, last))
		log_debug("nothing is learned: %s", text);
	else
		log_warn("nothing is learned, and nothing read ahead: %s", text);
	snprintf(last, sizeof(last), "%s", text);
}

/* The socket is closed when the directory has come, or will not. */
static void take_dir(struct prefetch_session *l)
{
	int r = state_dir_answer(l->config.state_fd);

	if (r == -EAGAIN && clock_ms() - l->begin_ms < DIR_LIMIT_MS)
		return;
	if (r >= 0)
		l->dir = r;
	else
		turn_off(l, r,
			 r == -EAGAIN	? "the state directory does not answer"
			 : r == -ENOENT ? "there is no state directory"
			 : r == -EPERM	? "the state directory is not this user's alone"
					: "");
	closep(&l->config.state_fd);
}

static void load_plan(struct prefetch_session *l)
{
	_cleanup_(profile_image_release) struct profile_image known = { 0 };
	const struct planner_limits limits = {
		.files = FILES_MAX,
		.bytes = BYTES_MAX,
	};
	char err[ERR_SIZE] = "";
	int r = profile_load(l->dir, &l->stack, &known, err, sizeof(err));

	r = r ?: planner_make(&limits, &known, &l->plan);
	if (r < 0)
		turn_off(l, r, err);
}

static void load(struct prefetch_session *l)
{
	take_dir(l);
	if (l->dir >= 0)
		load_plan(l);
}

static void store(struct prefetch_session *l)
{
	char err[ERR_SIZE] = "";
	int r;

	/* A mount that nobody looked into says nothing about the image. */
	if (l->is_off || !l->collected.start.nitems)
		return;
	r = profile_store(l->dir, &l->stack, &l->collected.start, err, sizeof(err));
	if (r < 0)
		turn_off(l, r, err);
}

static void count(struct prefetch_session *l, enum stats_counter which, uint64_t extents)
{
	struct stats *before = stats_enter(l->config.stats);

	stats_add(which, extents * PLANNER_EXTENT_BYTES);
	stats_enter(before);
}

static void judge(struct prefetch_session *l)
{
	struct profile_start *start = &l->collected.start;
	struct plan_verdict v;

	if (!start->nitems || !l->plan.n)
		return;
	planner_judge(&l->plan, start, &v);
	if (!v.predicted)
		return;
	count(l, STATS_PREFETCH_HITS, v.hits);
	/* Prefetched data is cached, and would count as read. */
	if (l->is_fetched && l->collected.has_unseen)
		return;
	start->is_judged = true;
	start->precision = (double)v.hits / (double)v.predicted;
}

static void collect(struct prefetch_session *l, struct prefetch_io *f, bool has_plan)
{
	trace_end(l->trace);
	prefetch_io_stop(f);
	if (!l->is_off && trace_collect_take(l->config.image, l->trace, &l->collected) == 0 &&
	    has_plan)
		judge(l);
	if (has_plan)
		planner_release(&l->plan);
}

/* ---- the writer ---- */

/* Siblings that start at the same time need the same, and one of them gets it. */
static bool is_fetched_by_another(const struct prefetch_session *l) REQUIRES(writer.lock)
{
	for (struct list_link *i = writer.list.next; i != &writer.list; i = i->next) {
		const struct prefetch_session *o = learning_of(i);

		if (o != l && o->io && o->step == LOADED && o->image_key == l->image_key)
			return true;
	}
	return false;
}

static void become_loaded(struct prefetch_session *l) REQUIRES(writer.lock)
{
	l->step = LOADED;
	if (!l->is_stopped)
		count(l, STATS_PREDICTED_BYTES, planner_extents(&l->plan));
	if (l->is_stopped || !l->plan.n || !l->plan.is_trusted || l->plan.is_check)
		return;
	l->is_fetched = true;
	if (!is_fetched_by_another(l))
		prefetch_io_start(l->config.image, &l->plan, l->config.stats, &l->io);
}

/* The lock is let go of meanwhile. */
static void do_unlocked(struct prefetch_session *l, void (*fn)(struct prefetch_session *l))
	REQUIRES(writer.lock)
{
	mutex_unlock(&writer.lock);
	fn(l);
	mutex_lock(&writer.lock);
}

static void collect_locked(struct prefetch_session *l) REQUIRES(writer.lock)
{
	const bool has_plan = l->step == LOADED;
	struct prefetch_io *io = l->io;

	l->is_collecting = true;
	mutex_unlock(&writer.lock);
	collect(l, io, has_plan);
	mutex_lock(&writer.lock);
	l->io = NULL;
	l->is_collecting = false;
	if (has_plan)
		l->step = COLLECTED;
	pthread_cond_broadcast(&writer.done);
}

/* True: something was done, and the list may be another. Else *wait_ms is how long there is nothing
 * to do for l. */
static bool advance(struct prefetch_session *l, int64_t *wait_ms) REQUIRES(writer.lock)
{
	const int64_t left = l->begin_ms + l->config.window_ms - clock_ms();

	switch (l->step) {
	case ASKED:
		do_unlocked(l, load);
		if (l->config.state_fd >= 0) {
			*wait_ms = DIR_STEP_MS;
			return false;
		}
		become_loaded(l);
		return true;
	case LOADED:
		if (l->is_collecting || (!l->is_stopped && left > 0)) {
			*wait_ms = l->is_collecting ? INT64_MAX : left;
			return false;
		}
		/* A mount that was stopped before it was loaded has been collected by
		 * prefetch_session_stop. */
		if (l->is_stopped)
			l->step = COLLECTED;
		else
			collect_locked(l);
		return true;
	case COLLECTED:
		do_unlocked(l, store);
		trace_collect_release(&l->collected);
		l->step = STORED;
		list_del(&l->link);
		writer.n--;
		unref_locked(l);
		pthread_cond_broadcast(&writer.done);
		return true;
	case STORED:
		break;
	}
	return false;
}

static void *run(void *arg)
{
	(void)arg;
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	mutex_lock(&writer.lock);
	for (;;) {
		int64_t wait_ms = INT64_MAX;
		bool was_busy = false;

		for (struct list_link *i = writer.list.next; i != &writer.list && !was_busy;
		     i = i->next) {
			int64_t ms = INT64_MAX;

			was_busy = advance(learning_of(i), &ms);
			wait_ms = MIN(ms, wait_ms);
		}
		if (!was_busy && wait_ms == INT64_MAX)
			pthread_cond_wait(&writer.wake, &writer.lock);
		else if (!was_busy)
			clock_wait(&writer.wake, &writer.lock, clock_ms() + wait_ms);
	}
	return NULL;
}

static int start_writer_locked(void) REQUIRES(writer.lock)
{
	int r;

	if (writer.is_running)
		return 0;
	/* Detached: it may never come back from a directory that does not answer. */
	r = thread_start(run, NULL, 0);
	writer.is_running = r == 0;
	return r;
}

/* ---- the mount ---- */

/* No other thread knows it yet. */
static int make(const struct prefetch_session_config *c,
		struct prefetch_session **ret) UNCHECKED_LOCKS
{
	struct prefetch_session *l = calloc(1, sizeof(*l));
	struct layer *const *layers;

	if (!l)
		return -ENOMEM;
	l->layers = trace_collect_layers(c->image, &l->stack.n);
	if (!l->layers || trace_new(c->window_ms, &l->trace) < 0) {
		free(l->layers);
		free(l);
		return -ENOMEM;
	}
	image_layers(c->image, &layers);
	snprintf(l->label, sizeof(l->label), "%s", layers[0]->path);
	l->stack.layers = l->layers;
	l->stack.label = l->label;
	l->image_key = profile_image_key(&l->stack);
	l->config = *c;
	l->begin_ms = clock_ms();
	l->dir = -1;
	l->refs = 2;
	list_init(&l->link);
	*ret = l;
	return 0;
}

int prefetch_session_start(const struct prefetch_session_config *c, struct prefetch_session **ret)
{
	struct prefetch_session *l;
	int fd = c->state_fd, r = make(c, &l);

	if (r == 0) {
		mutex_lock(&writer.lock);
		r = writer.n < WAITING_MAX ? start_writer_locked() : -EBUSY;
		if (r == 0) {
			list_add_tail(&writer.list, &l->link);
			writer.n++;
			pthread_cond_signal(&writer.wake);
			*ret = l;
		} else {
			l->refs = 1;
			unref_locked(l);
			fd = -1;
		}
		mutex_unlock(&writer.lock);
	} else {
		closep(&fd);
	}
	return r;
}

struct trace *prefetch_session_trace(struct prefetch_session *l)
{
	return l->trace;
}

void prefetch_session_stop(struct prefetch_session *l)
{
	if (!l)
		return;
	mutex_lock(&writer.lock);
	l->is_stopped = true;
	while (l->is_collecting)
		pthread_cond_wait(&writer.done, &writer.lock);
	if (l->step < COLLECTED)
		collect_locked(l);
	pthread_cond_signal(&writer.wake);
	unref_locked(l);
	mutex_unlock(&writer.lock);
}

void prefetch_session_drain(unsigned timeout_ms)
{
	const int64_t until = clock_ms() + timeout_ms;

	LOCK_SCOPE(&writer.lock);
	while (writer.n && clock_wait(&writer.done, &writer.lock, until) == 0)
		;
}
