// SPDX-License-Identifier: Apache-2.0
/* What becomes of a mount, each step once and in this order, all but the first and the last by the
 * scribe:
 *
 * ASKED      its state directory is being opened by another process
 * LOADED     what is known of the image is here, or will not come (is_off); fetching may have begun
 * HARVESTED  the window is over, or the mount: what it was asked for is collected; the image is not
 * looked at any more STORED     that is in the profile; the struct goes when the mount has gone,
 * too
 *
 * Invariants:
 * 1. The image and the stats are used only by prefetch_session_start, by the fetcher, and by
 * harvest() while is_harvesting; prefetch_session_stop ends the one and waits for the other, and
 * neither begins once is_stopped.
 * 2. The profile is used by the scribe alone, without the lock. A directory that does not answer
 * stops the scribe, and with it all learning of this process, and nothing else.
 * 3. A learning is in the list from its start until it is STORED, and belongs to the list and to
 * its mount (refs). */
#include "veneer/prefetch/prefetch_session.h"

#include "prefetch_io.h"
#include "trace_collect.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/list.h"
#include "veneer/base/log.h"
#include "veneer/prefetch/planner.h"
#include "veneer/prefetch/state_dir.h"

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

enum step { ASKED, LOADED, HARVESTED, STORED };

struct prefetch_session {
	struct list_link link;
	struct prefetch_session_config config;
	struct trace *trace;
	char label[LABEL_MAX];
	uint64_t *layers;
	struct profile_stack stack;
	uint64_t image_key;
	int64_t begin_ms;
	int dir; /* the scribe's; -1 */
	_Atomic bool is_off;

	/* guarded by scribe.lock */
	enum step step;
	unsigned refs;
	bool is_stopped, is_harvesting;
	struct prefetch_io *fetcher;

	/* The plan, and whether this or a sibling has it fetched: the scribe's until LOADED,
	 * constant then. The harvest: who has is_harvesting; then the scribe's. */
	struct plan plan;
	bool is_fetched;
	struct trace_collect harvest;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	/* guarded by lock */
	struct list_link list;
	size_t n;
	bool is_running;
} scribe = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
	.list = { &scribe.list, &scribe.list },
};

static struct prefetch_session *learning_of(struct list_link *l)
{
	return (struct prefetch_session *)((char *)l - offsetof(struct prefetch_session, link));
}

static void unref_locked(struct prefetch_session *l)
{
	if (--l->refs)
		return;
	closep(&l->config.state_fd);
	closep(&l->dir);
	planner_release(&l->plan);
	trace_collect_release(&l->harvest);
	trace_free(l->trace);
	free(l->layers);
	free(l);
}

/* ---- the steps, without the lock ---- */

/* One line for each reason, however many mounts it is the reason of. */
static void turn_off(struct prefetch_session *l, int r, const char *why)
{
	static char last[ERR_SIZE]; /* the scribe's */
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
		.kind = l->config.predictor,
		.files = FILES_MAX,
		.bytes = BYTES_MAX,
		.seed = (uint64_t)clock_ms(),
	};
	char err[ERR_SIZE] = "";
	struct profile *p;
	int r;

	/* It is made when there is something to store: that syncs, and a start is under way. */
	if (faccessat(l->dir, PROFILE_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return;
	r = profile_open(l->dir, false, &p, err, sizeof(err));
	if (r == 0) {
		r = profile_load(p, &l->stack, &known, err, sizeof(err));
		profile_close(p);
	}
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
	struct profile *p;
	int r;

	/* A mount that nobody looked into says nothing about the image. */
	if (l->is_off || !l->harvest.start.nitems)
		return;
	r = profile_open(l->dir, false, &p, err, sizeof(err));
	if (r == 0) {
		r = profile_store(p, &l->stack, &l->harvest.start, err, sizeof(err));
		profile_close(p);
	}
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
	struct profile_start *start = &l->harvest.start;
	struct plan_verdict v;

	if (!start->nitems || !l->plan.n)
		return;
	planner_judge(&l->plan, start, &v);
	if (!v.predicted)
		return;
	count(l, STATS_PREFETCH_HITS, v.hits);
	/* What was fetched is cached, and would count as read. */
	if (l->is_fetched && l->harvest.has_unseen)
		return;
	start->is_judged = true;
	start->precision = (double)v.hits / (double)v.predicted;
}

static void harvest(struct prefetch_session *l, struct prefetch_io *f, bool has_plan)
{
	trace_end(l->trace);
	prefetch_io_stop(f);
	if (!l->is_off && trace_collect_take(l->config.image, l->trace, &l->harvest) == 0 &&
	    has_plan)
		judge(l);
	if (has_plan)
		planner_release(&l->plan);
}

/* ---- the scribe ---- */

/* Siblings that start at the same time need the same, and one of them gets it. */
static bool is_fetched_by_another(const struct prefetch_session *l)
{
	for (struct list_link *i = scribe.list.next; i != &scribe.list; i = i->next) {
		const struct prefetch_session *o = learning_of(i);

		if (o != l && o->fetcher && o->step == LOADED && o->image_key == l->image_key)
			return true;
	}
	return false;
}

static void become_loaded(struct prefetch_session *l)
{
	l->step = LOADED;
	if (!l->is_stopped)
		count(l, STATS_PREDICTED_BYTES, planner_extents(&l->plan));
	if (l->is_stopped || !l->plan.n || !l->plan.is_trusted || l->plan.is_check)
		return;
	l->is_fetched = true;
	if (!is_fetched_by_another(l))
		prefetch_io_start(l->config.image, &l->plan, l->config.stats, &l->fetcher);
}

/* With the lock, which is let go of meanwhile. */
static void do_unlocked(struct prefetch_session *l, void (*fn)(struct prefetch_session *l))
{
	pthread_mutex_unlock(&scribe.lock);
	fn(l);
	pthread_mutex_lock(&scribe.lock);
}

static void harvest_locked(struct prefetch_session *l)
{
	const bool has_plan = l->step == LOADED;

	l->is_harvesting = true;
	pthread_mutex_unlock(&scribe.lock);
	harvest(l, l->fetcher, has_plan);
	pthread_mutex_lock(&scribe.lock);
	l->fetcher = NULL;
	l->is_harvesting = false;
	if (has_plan)
		l->step = HARVESTED;
	pthread_cond_broadcast(&scribe.done);
}

/* True: something was done, and the list may be another. Else *wait_ms is how long there is nothing
 * to do for l. */
static bool advance(struct prefetch_session *l, int64_t *wait_ms)
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
		if (l->is_harvesting || (!l->is_stopped && left > 0)) {
			*wait_ms = l->is_harvesting ? INT64_MAX : left;
			return false;
		}
		/* A mount that was stopped before it was loaded has been harvested by
		 * prefetch_session_stop. */
		if (l->is_stopped)
			l->step = HARVESTED;
		else
			harvest_locked(l);
		return true;
	case HARVESTED:
		do_unlocked(l, store);
		trace_collect_release(&l->harvest);
		l->step = STORED;
		list_del(&l->link);
		scribe.n--;
		unref_locked(l);
		pthread_cond_broadcast(&scribe.done);
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
	pthread_mutex_lock(&scribe.lock);
	for (;;) {
		int64_t wait_ms = INT64_MAX;
		bool was_busy = false;

		for (struct list_link *i = scribe.list.next; i != &scribe.list && !was_busy;
		     i = i->next) {
			int64_t ms = INT64_MAX;

			was_busy = advance(learning_of(i), &ms);
			wait_ms = ms < wait_ms ? ms : wait_ms;
		}
		if (!was_busy && wait_ms == INT64_MAX)
			pthread_cond_wait(&scribe.wake, &scribe.lock);
		else if (!was_busy)
			clock_wait(&scribe.wake, &scribe.lock, clock_ms() + wait_ms);
	}
	return NULL;
}

static int start_scribe_locked(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (scribe.is_running)
		return 0;
	/* Nobody waits for it: it may never come back from a directory that does not answer. */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = -pthread_create(&thread, &attr, run, NULL);
	pthread_attr_destroy(&attr);
	scribe.is_running = r == 0;
	return r;
}

/* ---- the mount ---- */

static int make(const struct prefetch_session_config *c, struct prefetch_session **ret)
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
		pthread_mutex_lock(&scribe.lock);
		r = scribe.n < WAITING_MAX ? start_scribe_locked() : -EBUSY;
		if (r == 0) {
			list_add_tail(&scribe.list, &l->link);
			scribe.n++;
			pthread_cond_signal(&scribe.wake);
			*ret = l;
		} else {
			l->refs = 1;
			unref_locked(l);
			fd = -1;
		}
		pthread_mutex_unlock(&scribe.lock);
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
	pthread_mutex_lock(&scribe.lock);
	l->is_stopped = true;
	while (l->is_harvesting)
		pthread_cond_wait(&scribe.done, &scribe.lock);
	if (l->step < HARVESTED)
		harvest_locked(l);
	pthread_cond_signal(&scribe.wake);
	unref_locked(l);
	pthread_mutex_unlock(&scribe.lock);
}

void prefetch_session_drain(unsigned timeout_ms)
{
	const int64_t until = clock_ms() + timeout_ms;

	LOCK_SCOPE(&scribe.lock);
	while (scribe.n && clock_wait(&scribe.done, &scribe.lock, until) == 0)
		;
}
