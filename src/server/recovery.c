// SPDX-License-Identifier: Apache-2.0
#include "recovery.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/human_units.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ERR_SIZE    (PATH_MAX * 2)
#define STACK_BYTES (1u << 20)
#define THREADS_MAX 64u
#define STEP_MS	    50 /* without a finished mount: a thread counts as hanging */
#define PATIENCE_MS 1000 /* limit for mounts that were begun, when none is left to begin */
#define LIMIT_MS    10000
#define WORD_MS	    30000 /* then the process that waits for the word gets the counts so far */

/* A set of descriptors, one bit each. */
struct fd_set_of {
	uint8_t *bits;
	size_t n;
	bool is_short; /* out of memory: the set is unusable */
};

static void remember(int fd, void *arg)
{
	struct fd_set_of *s = arg;
	const size_t had = s->n;

	if (fd < 0 || s->is_short)
		return;
	if (array_reserve(&s->bits, &s->n, (size_t)fd / 8 + 1) < 0) {
		s->is_short = true;
		return;
	}
	memset(s->bits + had, 0, s->n - had);
	s->bits[fd / 8] |= (uint8_t)(1u << fd % 8);
}

static bool is_remembered(const struct fd_set_of *s, int fd)
{
	return (size_t)fd / 8 < s->n && s->bits[fd / 8] & 1u << fd % 8;
}

struct each_fd {
	void (*fn)(int fd, void *arg);
	void *arg;
};

static void each_of_mount(int fd, uint32_t place, void *arg)
{
	const struct each_fd *e = arg;
	struct mount_record d;

	(void)place;
	if (mount_record_read(fd, &d) < 0) {
		e->fn(fd, e->arg);
		return;
	}
	mount_record_each_fd(&d, e->fn, e->arg);
	node_table_held_fds(d.slots_fd, e->fn, e->arg);
	mount_record_forget(&d);
}

void recovery_each_fd(struct supervisor_state *l, void (*fn)(int fd, void *arg), void *arg)
{
	supervisor_state_each(l, each_of_mount, &(struct each_fd){ fn, arg });
}

/* May closing this file wait? A regular file may wait for an unresponsive file system, or for the
 * release of its blocks; nothing else does. The check itself must not wait either. */
static bool may_wait(int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0 ||
	       S_ISREG(st.stx_mode);
}

struct unneeded {
	size_t n, room;
	int *fds;
};

static void *close_unneeded(void *arg)
{
	struct unneeded *l = arg;

	for (size_t i = 0; i < l->n; i++)
		close(l->fds[i]);
	free(l->fds);
	free(l);
	return NULL;
}

static bool put_off(struct unneeded *l, int fd)
{
	if (array_reserve(&l->fds, &l->room, l->n + 1) < 0)
		return false;
	l->fds[l->n++] = fd;
	return true;
}

/* Close all descriptors that are not known. Locks and connections are free when this returns.
 * Regular files are closed later; until then their numbers are not reused. */
static void close_unknown(const struct fd_set_of *known)
{
	struct unneeded *later = calloc(1, sizeof(*later));
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;

	if (!dir)
		log_warn("cannot close the descriptors of the previous server: %s",
			 strerror(errno));
	while (dir && (de = readdir(dir))) {
		int fd = atoi(de->d_name);

		if (*de->d_name == '.' || fd <= 2 || fd == dirfd(dir) || is_remembered(known, fd))
			continue;
		if (!later || !may_wait(fd) || !put_off(later, fd))
			close(fd);
	}
	if (dir)
		closedir(dir);
	if (later && (later->n == 0 || thread_start(close_unneeded, later, STACK_BYTES) < 0))
		close_unneeded(later);
}

/* Remove the entry first: parsing a damaged record might crash us again. */
static void give_up(int fd, uint32_t place, void *arg)
{
	struct supervisor_state *l = arg;
	struct mount_opts opts;
	struct mount_record d;
	char err[ERR_SIZE];

	if (!supervisor_state_is_given_up(l, place))
		return;
	supervisor_state_drop(l, place);
	if (mount_record_read(fd, &d) < 0)
		return;
	intent_log_drop(d.key);
	if (mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)) == 0) {
		log_error("%s: %u servers crashed over this mount, one after the other: it is "
			  "given up",
			  opts.mountpoint, SUPERVISOR_STATE_STRIKES);
		options_release(&opts);
	}
	mount_record_forget(&d);
}

void recovery_close_others(struct supervisor_state *l, const int *fds, size_t n)
{
	struct fd_set_of known = { .bits = NULL };

	supervisor_state_each(l, give_up, l);
	for (size_t i = 0; i < n; i++)
		remember(fds[i], &known);
	remember(supervisor_state_word(l), &known);
	recovery_each_fd(l, remember, &known);
	if (known.is_short)
		log_warn(
			"no memory to list the descriptors of the previous server: they stay open");
	else
		close_unknown(&known);
	free(known.bits);
}

/* One mount that is to be resumed. */
struct job {
	int fd;
	uint32_t place, cost_ms;
};

/* Shared: each thread owns a reference, and recovery_resume until it returns. */
struct resuming {
	struct supervisor_state *supervisor_state;
	struct mount_table *mount_table;
	int64_t since_ms;
	size_t n, room; /* of jobs, quick ones first */
	struct job *jobs;
	mutex_t lock;
	pthread_cond_t changed;
	GUARDED_BY(lock) unsigned owners;
	GUARDED_BY(lock) size_t next, n_done, n_resumed, n_lost;
};

/* A crash in between is harmless: the word is sent twice, or the descriptor remains without an
 * owner. */
static void send_word_locked(const struct resuming *v) REQUIRES(v->lock)
{
	char text[80];
	int fd = supervisor_state_word(v->supervisor_state);

	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "moved %zu %zu %zu", v->n_resumed, v->n_lost,
		 v->n - v->n_done);
	(void)!write(fd, text, strlen(text));
	supervisor_state_set_word(v->supervisor_state, -1);
	close(fd);
}

static void say_done(struct resuming *v)
{
	size_t resumed, lost;

	mount_table_resumed(v->mount_table);
	mutex_lock(&v->lock);
	resumed = v->n_resumed;
	lost = v->n_lost;
	mutex_unlock(&v->lock);
	log_info("going on with %s of the server before, lost: %zu; it took %lld ms",
		 human_units_of(resumed, "mount").text, lost,
		 (long long)(clock_ms() - v->since_ms));
	LOCK_SCOPE(&v->lock);
	send_word_locked(v);
}

/* Results as mount_table_resume; -errno: the mount is lost, and the log has the reason. */
static int resume(struct resuming *v, const struct job *j)
{
	char err[ERR_SIZE] = "";
	struct mount_record d;
	int r = mount_record_read(j->fd, &d);

	if (r < 0) {
		snprintf(err, sizeof(err), "its mount record cannot be read: %s", strerror(-r));
		supervisor_state_drop(v->supervisor_state, j->place);
		mount_table_expect(v->mount_table, -1);
	} else {
		r = mount_table_resume(v->mount_table, &d, j->place, err, sizeof(err));
	}
	if (r < 0)
		log_error("a mount is lost with the server that had it: %s", err);
	return r;
}

/* Assume the worst cost first: a mount that never finishes comes last the next time. */
static int resume_timed(struct resuming *v, const struct job *j)
{
	const int64_t from = clock_ms();
	struct activity *before;
	int r;

	supervisor_state_note_cost(v->supervisor_state, j->place, SUPERVISOR_STATE_UNANSWERED);
	before = activity_begin(supervisor_state_activity(v->supervisor_state, j->place));
	r = resume(v, j);
	activity_end(before);
	supervisor_state_note_cost(v->supervisor_state, j->place, (uint32_t)(clock_ms() - from));
	return r;
}

static void disown(struct resuming *v)
{
	bool is_last;

	mutex_lock(&v->lock);
	is_last = --v->owners == 0;
	pthread_cond_broadcast(&v->changed);
	mutex_unlock(&v->lock);
	if (!is_last)
		return;
	pthread_cond_destroy(&v->changed);
	mutex_destroy(&v->lock);
	free(v->jobs);
	free(v);
}

static struct job *take_job(struct resuming *v)
{
	LOCK_SCOPE(&v->lock);
	return v->next < v->n ? &v->jobs[v->next++] : NULL;
}

/* True: this was the last mount. */
static bool count_job(struct resuming *v, int r)
{
	LOCK_SCOPE(&v->lock);
	v->n_resumed += r == 0;
	v->n_lost += r < 0;
	v->n_done++;
	pthread_cond_broadcast(&v->changed);
	return v->n_done == v->n;
}

static void *resume_some(void *arg)
{
	struct resuming *v = arg;
	struct job *j;

	while ((j = take_job(v)))
		if (count_job(v, resume_timed(v, j)))
			say_done(v);
	disown(v);
	return NULL;
}

/* Start n threads; if not even one can be started, do the work here. */
static void add_threads(struct resuming *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		mutex_lock(&v->lock);
		v->owners++;
		mutex_unlock(&v->lock);
		if (thread_start(resume_some, v, STACK_BYTES) < 0) {
			if (i == 0)
				resume_some(v);
			else
				disown(v);
			return;
		}
	}
}

static size_t threads_wanted(size_t n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t most = cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (size_t)cpus;

	return MIN(n, most);
}

/* Wait for a finished mount, at most ms. */
static void await_change(struct resuming *v, unsigned ms)
{
	clock_wait(&v->changed, &v->lock, clock_ms() + ms);
}

/* Add a thread for each one that hangs, as long as mounts remain to be begun. */
static void watch_over(struct resuming *v)
{
	size_t seen = 0, done, left, more = 0;
	int64_t since = v->since_ms;

	for (;;) {
		mutex_lock(&v->lock);
		if (v->n_done < v->n)
			await_change(v, STEP_MS);
		done = v->n_done;
		left = v->n - v->next;
		more = v->owners - 1;
		mutex_unlock(&v->lock);
		if (done == v->n || clock_ms() - v->since_ms >= (left ? LIMIT_MS : PATIENCE_MS))
			return;
		if (done != seen) {
			seen = done;
			since = clock_ms();
		} else if (left && clock_ms() - since >= STEP_MS && more < THREADS_MAX) {
			add_threads(v, left < more ? left : more ?: 1);
			since = clock_ms();
		}
	}
}

/* Send the counts after WORD_MS at the latest: some threads may hang for ever. */
static void *say_so_far(void *arg)
{
	struct resuming *v = arg;

	mutex_lock(&v->lock);
	while (v->n_done < v->n && clock_ms() - v->since_ms < WORD_MS)
		await_change(v, PATIENCE_MS);
	if (v->n_done < v->n)
		send_word_locked(v);
	mutex_unlock(&v->lock);
	disown(v);
	return NULL;
}

/* If no thread can be started, the word is sent when all are done. */
static void promise_word(struct resuming *v)
{
	mutex_lock(&v->lock);
	v->owners++;
	mutex_unlock(&v->lock);
	if (thread_start(say_so_far, v, STACK_BYTES) < 0)
		disown(v);
}

static void note_job(int fd, uint32_t place, void *arg)
{
	struct resuming *v = arg;

	if (v->n < v->room)
		v->jobs[v->n++] = (struct job){ fd, place,
						supervisor_state_cost(v->supervisor_state, place) };
}

static void count_one(int fd, uint32_t place, void *arg)
{
	(void)fd;
	(void)place;
	++*(size_t *)arg;
}

static int by_cost(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	return x->cost_ms < y->cost_ms ? -1 : x->cost_ms > y->cost_ms;
}

static struct resuming *resuming_new(struct supervisor_state *l, struct mount_table *r)
{
	struct resuming *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	*v = (struct resuming){
		.supervisor_state = l, .mount_table = r, .since_ms = clock_ms(), .owners = 1
	};
	supervisor_state_each(l, count_one, &v->room);
	v->jobs = calloc(v->room + 1, sizeof(*v->jobs));
	if (!v->jobs) {
		free(v);
		return NULL;
	}
	supervisor_state_each(l, note_job, v);
	qsort(v->jobs, v->n, sizeof(*v->jobs), by_cost);
	mutex_init(&v->lock);
	pthread_cond_init(&v->changed, NULL);
	return v;
}

int recovery_resume(struct supervisor_state *l, struct mount_table *r)
{
	struct resuming *v = resuming_new(l, r);

	if (!v)
		return -ENOMEM;
	mount_table_expect(r, (int)v->n);
	if (v->n) {
		add_threads(v, threads_wanted(v->n));
		watch_over(v);
		if (supervisor_state_word(l) >= 0)
			promise_word(v);
	} else {
		say_done(v);
	}
	disown(v);
	return 0;
}
