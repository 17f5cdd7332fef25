// SPDX-License-Identifier: Apache-2.0
/* A round of one mount: the map is asked which files there is something to do for, the inodes of
 * these are looked for among those that are known, then in the upper, and one after the other is
 * completed by chunks. Between any two chunks it may be told to stop: by a request, by pressure, by
 * the end of the mount. What was done stays done.
 *
 * A mount wants a round when blocks became own since the last one began (tree->is_armed), or when
 * that was cut short. Some time after files left the map, it is written anew without them: then
 * nothing can bring their marks back.
 *
 * crew.lock guards the list and what says so below; it is never held over work. */
#include "veneer/jobs/promote_worker.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/materialize.h"
#include "veneer/jobs/upper_walk.h"
#include "veneer/sys/pressure.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

#define NICE		10
#define NEVER		UINT64_MAX
#define PAUSE_MS	1000u /* until it is looked again whether a mount is quiet */
#define ROUND_MS	50u /* at least, from the end of a round to the next of an eager mount */
#define NO_ROOM_MS	60000u /* after a disk was full */
#define SETTLE_MS	60000u /* from a file's end to the map's being written without it */
#define SETTLE_EAGER_MS 2000u
#define PRESSURE_MS	100u /* the kernel's averages do not change much faster */
#define FINISH_COST	(64u << 10) /* what ending a file counts for against the rate: a sync */

struct promote_worker {
	struct union_fs *tree;
	enum promote_policy_mode mode;
	struct promote_policy_rate rate; /* the thread's own, as are: */
	struct promote_policy_quiet quiet;
	bool is_pressed; /* as of pressure_ms */
	uint64_t pressure_ms;
	file_id_t *lost; /* sorted: in the map, and not to be found in the upper */
	size_t n_lost;
	size_t n_unsettled; /* files that left the map since it was written */
	_Atomic bool is_stopping;
	/* guarded by crew.lock */
	struct list_link link;
	bool is_wanting, is_busy;
	uint64_t at_ms; /* not before this */
	uint64_t settle_ms; /* NEVER: nothing to settle */
	struct promote_worker_job *job; /* NULL: none */
};

struct promote_worker_job {
	/* guarded by crew.lock */
	struct promote_worker *of; /* NULL: ended */
	bool is_given_up;
	struct promote_worker_progress progress;
	int result;
};

/* Of its own, so that a thread that ends it may wait for it while the next one has begun. */
struct worker {
	pthread_t thread;
	bool is_ending; /* guarded by crew.lock */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	/* guarded by lock */
	struct list_link mounts;
	struct worker *worker; /* NULL: nobody wanted it yet */
	_Atomic unsigned n_jobs; /* written under lock */
} crew = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
	.mounts = { &crew.mounts, &crew.mounts },
};

static struct promote_worker *promote_of(struct list_link *l)
{
	return container_of(l, struct promote_worker, link);
}

static uint64_t now_ms(void)
{
	return (uint64_t)clock_ms();
}

/* Under the lock; may wake early. */
static void wait_locked(pthread_cond_t *cond, uint64_t until_ms)
{
	if (until_ms == NEVER)
		pthread_cond_wait(cond, &crew.lock);
	else
		clock_wait(cond, &crew.lock, (int64_t)until_ms);
}

/* ---- whether to go on ---- */

static bool is_idle(struct promote_worker *p)
{
	const uint64_t now = now_ms();

	if (!promote_policy_is_quiet(&p->quiet, stats_requests(), now))
		return false;
	if (now - p->pressure_ms >= PRESSURE_MS) {
		p->is_pressed =
			promote_policy_is_pressed(pressure_some("memory"), pressure_some("io"));
		p->pressure_ms = now;
	}
	return !p->is_pressed;
}

/* Before each step of a round. 0; -EAGAIN: later; -ECANCELED. */
static int go_on(struct promote_worker *p)
{
	for (;;) {
		uint64_t delay = p->mode == PROMOTE_POLICY_AUTO
					 ? promote_policy_delay_ms(&p->rate, now_ms())
					 : 0;

		if (p->is_stopping)
			return -ECANCELED;
		if (crew.n_jobs || (p->mode == PROMOTE_POLICY_AUTO && !is_idle(p)))
			return -EAGAIN;
		if (!delay)
			return 0;
		delay = MIN(delay, PAUSE_MS);
		LOCK_SCOPE(&crew.lock);
		if (!p->is_stopping)
			wait_locked(&crew.wake, now_ms() + delay);
	}
}

/* Of the machine and not of one file. */
static bool is_fatal(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EROFS || r == -EMFILE ||
	       r == -ENFILE;
}

/* ---- steps ---- */

static int fill_chunk(struct promote_worker *p, struct materialize *w, struct inode *i,
		      uint64_t chunk)
{
	const uint64_t bytes = w->bytes, cloned = w->cloned;
	int r = materialize_fill(w, i, chunk * CHUNK_BLKS, (chunk + 1) * CHUNK_BLKS);

	if (r == 0)
		stats_add(STATS_PROMOTED_CHUNKS, 1);
	stats_add(STATS_PROMOTED_BYTES, w->bytes - bytes);
	stats_add(STATS_PROMOTED_CLONED, w->cloned - cloned);
	promote_policy_spend(&p->rate, w->bytes - bytes);
	return r;
}

/* 1: it has left the map. */
static int finish_file(struct promote_worker *p, struct materialize *w, struct inode *i)
{
	int r = i->src.id ? materialize_finish(w, i) : 0;

	promote_policy_spend(&p->rate, FINISH_COST);
	if (r != 1)
		return r;
	stats_add(STATS_PROMOTED_FILES, 1);
	p->n_unsettled++;
	return 1;
}

static unsigned blks_of_chunk(uint64_t clip, uint64_t chunk)
{
	const uint64_t end = (clip + BLK_BYTES - 1) >> BLK_SHIFT, base = chunk * CHUNK_BLKS;

	return end - base < CHUNK_BLKS ? (unsigned)(end - base) : CHUNK_BLKS;
}

static unsigned count_bits(const uint64_t bits[2])
{
	return (unsigned)(__builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]));
}

/* Do what the policy says of one file. */
static int promote_file(struct promote_worker *p, struct materialize *w, struct inode *i)
{
	const file_id_t id = i->src.id;
	struct mapfile *map = p->tree->map;
	uint64_t chunk = 0, bits[2], clip;
	int r;

	for (; (r = mapfile_next_chunk(map, id, &chunk, bits)) == 1; chunk++) {
		if (mapfile_clip(map, id, &clip) < 0 || chunk * CHUNK_BYTES >= clip)
			break;
		if (!promote_policy_takes_chunk(count_bits(bits), blks_of_chunk(clip, chunk)))
			continue;
		r = go_on(p);
		r = r ?: fill_chunk(p, w, i, chunk);
		if (r < 0)
			return r;
	}
	if (mapfile_is_complete(map, id) != 1)
		return 0;
	r = go_on(p);
	r = r ?: finish_file(p, w, i);
	return r < 0 ? r : 0;
}

/* ---- which files ---- */

struct candidate {
	uint64_t id;
	struct inode *i; /* referenced; NULL: not found yet */
};

struct round {
	struct promote_worker *p;
	struct promote_policy_file *files; /* in the order of promotion */
	struct candidate *found; /* the same n by id */
	size_t n, cap;
	size_t n_wanted; /* not found, and not lost either */
	int error;
};

static int by_id(const void *a, const void *b)
{
	const struct candidate *c = a, *d = b;

	return c->id < d->id ? -1 : c->id > d->id;
}

static int by_number(const void *a, const void *b)
{
	const file_id_t *m = a, *n = b;

	return *m < *n ? -1 : *m > *n;
}

static struct candidate *find_candidate(const struct round *r, file_id_t id)
{
	const struct candidate key = { .id = id };

	return id && r->n ? bsearch(&key, r->found, r->n, sizeof(key), by_id) : NULL;
}

static bool is_lost(const struct promote_worker *p, file_id_t id)
{
	return p->n_lost && bsearch(&id, p->lost, p->n_lost, sizeof(id), by_number);
}

/* Under the map's lock. */
static void weigh(void *arg, file_id_t id, const struct blkmap *map)
{
	const uint64_t clip = blkmap_clip(map), all = (clip + BLK_BYTES - 1) >> BLK_SHIFT;
	struct promote_policy_file f = { .id = id };
	struct round *r = arg;
	uint64_t chunk = 0, bits[2];

	for (; !blkmap_is_complete(map) && blkmap_next_chunk(map, &chunk, bits); chunk++) {
		const unsigned own = count_bits(bits), of = blks_of_chunk(clip, chunk);

		if (promote_policy_takes_chunk(own, of))
			f.missing += of - own;
	}
	f.ends = blkmap_count(map) + f.missing == all;
	if (r->error || (!f.missing && !f.ends))
		return;
	r->error = array_reserve(&r->files, &r->cap, r->n + 1);
	if (r->error == 0)
		r->files[r->n++] = f;
}

static int collect(struct round *r)
{
	mapfile_each(r->p->tree->map, weigh, r);
	if (r->error || !r->n)
		return r->error;
	promote_policy_order(r->files, r->n);
	r->found = calloc(r->n, sizeof(*r->found));
	if (!r->found)
		return -ENOMEM;
	for (size_t k = 0; k < r->n; k++) {
		r->found[k].id = r->files[k].id;
		r->n_wanted += !is_lost(r->p, r->files[k].id);
	}
	qsort(r->found, r->n, sizeof(*r->found), by_id);
	return 0;
}

static void take_inode(struct round *r, struct candidate *c, struct inode *i)
{
	if (c->i)
		return;
	c->i = i;
	r->n_wanted -= !is_lost(r->p, c->id);
}

/* Among the inodes that there are. */
static void find_known(struct round *r)
{
	struct union_fs *t = r->p->tree;

	LOCK_SCOPE(&t->lock);
	for (uint32_t id = NODE_TABLE_ROOT; id < node_table_end(t->nodes); id++) {
		struct inode *i = node_table_object(t->nodes, id);
		struct candidate *c;

		if (!i || i->type != DT_REG || i->is_unresolved || !i->has_upper)
			continue;
		c = find_candidate(r, i->src.id);
		if (c && !c->i) {
			i->refs++;
			take_inode(r, c, i);
		}
	}
}

static int see_entry(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct round *r = arg;
	struct candidate *c = i->type == DT_REG ? find_candidate(r, i->src.id) : NULL;
	int e = go_on(r->p);

	(void)parent;
	(void)name;
	if (e < 0)
		return e;
	if (c && !c->i) {
		inode_ref(r->p->tree, i);
		take_inode(r, c, i);
	}
	/* All are found. */
	return r->n_wanted ? 0 : -EEXIST;
}

static int pass_over(void *arg, struct inode *parent, const char *name, int error)
{
	(void)arg;
	(void)parent;
	(void)name;
	return is_fatal(error) ? error : 0;
}

/* Remember files that are still not found, so as not to look for them again. */
static int remember_lost(struct round *r)
{
	file_id_t *lost = calloc(r->n, sizeof(*lost));
	size_t n = 0;

	if (!lost)
		return -ENOMEM;
	for (size_t k = 0; k < r->n; k++)
		if (!r->found[k].i)
			lost[n++] = r->found[k].id;
	free(r->p->lost);
	r->p->lost = lost;
	r->p->n_lost = n;
	return 0;
}

static int find_others(struct round *r)
{
	static const struct upper_walk_hooks hooks = { .entry = see_entry, .miss = pass_over };
	int e;

	if (!r->n_wanted)
		return 0;
	e = upper_walk(r->p->tree, &hooks, r);
	return e == -EEXIST ? 0 : e ?: remember_lost(r);
}

static int promote_found(struct round *r, struct materialize *w)
{
	int e = 0;

	for (size_t k = 0; e == 0 && k < r->n; k++) {
		const struct candidate *c = find_candidate(r, r->files[k].id);

		if (!c->i)
			continue;
		e = promote_file(r->p, w, c->i);
		/* Of this file alone, and said where it was found. */
		if (e != -EAGAIN && e != -ECANCELED && !is_fatal(e))
			e = 0;
	}
	return e;
}

static void round_release(struct round *r)
{
	for (size_t k = 0; r->found && k < r->n; k++)
		if (r->found[k].i)
			inode_unref(r->p->tree, r->found[k].i);
	free(r->found);
	free(r->files);
}

static int do_round(struct promote_worker *p)
{
	struct round round = { .p = p };
	struct materialize w;
	int r;

	p->tree->is_armed = true;
	r = go_on(p);
	if (r == 0)
		r = collect(&round);
	if (r == 0 && round.n) {
		find_known(&round);
		r = find_others(&round);
		if (r == 0)
			r = materialize_init(&w, p->tree, false);
		if (r == 0) {
			r = promote_found(&round, &w);
			materialize_release(&w);
		}
	}
	round_release(&round);
	return r;
}

/* ---- the map after it ---- */

static void settle(struct promote_worker *p)
{
	struct union_fs *t = p->tree;
	const uint64_t before = mapfile_now_ms();

	p->n_unsettled = 0;
	if (!t->is_volatile) {
		if (syncfs(t->upper->rootfd) < 0)
			return;
		mapfile_gone_for_good(t->map, before);
	}
	/* A failure is logged there; the old map goes on. */
	mapfile_checkpoint(t->map, true);
}

/* ---- all of a mount, asked for ---- */

struct job_run {
	struct promote_worker *p;
	struct promote_worker_job *job;
	struct materialize w;
	struct promote_worker_progress s;
};

static int check_job(struct job_run *j)
{
	LOCK_SCOPE(&crew.lock);
	j->s.bytes = j->w.bytes;
	j->s.cloned = j->w.cloned;
	j->job->progress = j->s;
	return j->p->is_stopping || j->job->is_given_up ? -ECANCELED : 0;
}

static int job_file(struct job_run *j, struct inode *i)
{
	const file_id_t id = i->src.id;
	struct mapfile *map = j->p->tree->map;
	uint64_t clip;
	blk_t end, n;
	int r = i->is_damaged ? -EIO : mapfile_clip(map, id, &clip);

	end = r == 0 ? (clip + BLK_BYTES - 1) >> BLK_SHIFT : 0;
	for (blk_t at = 0; r == 0 && at < end; at += n) {
		bool is_own;

		r = mapfile_run(map, id, at, end - at, &is_own, &n);
		if (r < 0 || is_own)
			continue;
		r = check_job(j) ?: fill_chunk(j->p, &j->w, i, at / CHUNK_BLKS);
		n = CHUNK_BLKS - at % CHUNK_BLKS;
	}
	r = r ?: finish_file(j->p, &j->w, i);
	return r == -ENOENT && !i->src.id ? 0 : r;
}

static int leave_file(struct job_run *j, struct inode *parent, const char *name, int r)
{
	_cleanup_(freep) char *path = inode_name_path(j->p->tree, parent, name);

	if (is_fatal(r) || r == -ECANCELED)
		return r;
	/* The file was removed, or renamed, meanwhile. */
	if (r == -ENOENT || r == -ESTALE)
		return 0;
	log_error("%s/%s: left as it is: %s", j->p->tree->upper->path, path ? path : name,
		  strerror(-r));
	j->s.left++;
	return 0;
}

static int job_entry(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct job_run *j = arg;
	int r = check_job(j);

	if (r < 0 || i->type != DT_REG || !(i->src.id || i->is_damaged))
		return r;
	r = job_file(j, i);
	if (r == 1)
		j->s.files++;
	return r < 0 ? leave_file(j, parent, name, r) : 0;
}

static int job_miss(void *arg, struct inode *parent, const char *name, int error)
{
	return leave_file(arg, parent, name, error);
}

static void count_file(void *arg, file_id_t id, const struct blkmap *map)
{
	struct promote_worker_progress *s = arg;
	const uint64_t own = blkmap_count(map) << BLK_SHIFT, clip = blkmap_clip(map);

	(void)id;
	s->nfiles++;
	s->nbytes += clip > own ? clip - own : 0;
}

static int do_job(struct promote_worker *p, struct promote_worker_job *job)
{
	static const struct upper_walk_hooks hooks = { .entry = job_entry, .miss = job_miss };
	struct job_run j = { .p = p, .job = job };
	int r = materialize_init(&j.w, p->tree, false);

	if (r < 0)
		return r;
	mapfile_each(p->tree->map, count_file, &j.s);
	r = upper_walk(p->tree, &hooks, &j);
	if (p->n_unsettled && r != -ECANCELED)
		settle(p);
	check_job(&j);
	materialize_release(&j.w);
	return r;
}

/* ---- the thread ---- */

/* The mount that is next, or until when to wait. */
static struct promote_worker *next_locked(uint64_t now, uint64_t *ret_until)
{
	struct promote_worker *next = NULL;

	*ret_until = NEVER;
	for (struct list_link *l = crew.mounts.next; l != &crew.mounts; l = l->next) {
		struct promote_worker *p = promote_of(l);
		uint64_t at = p->job ? 0 : p->is_wanting ? p->at_ms : NEVER;

		if (p->is_stopping)
			continue;
		if (!p->job && p->settle_ms < at)
			at = MAX(p->settle_ms, p->at_ms);
		if (at <= now && (!next || (p->job && !next->job)))
			next = p;
		if (at < *ret_until)
			*ret_until = at;
	}
	return next;
}

static void end_job_locked(struct promote_worker *p, int result)
{
	struct promote_worker_job *j = p->job;

	if (!j)
		return;
	p->job = NULL;
	j->of = NULL;
	j->result = result;
	crew.n_jobs--;
	pthread_cond_broadcast(&crew.done);
}

static uint64_t pause_after(const struct promote_worker *p, int r)
{
	if (is_fatal(r))
		return NO_ROOM_MS;
	return p->mode == PROMOTE_POLICY_EAGER ? ROUND_MS : PAUSE_MS;
}

/* Called, and returns, with the lock, which is not held meanwhile. */
static void serve_locked(struct promote_worker *p)
{
	const bool is_time_to_settle = p->settle_ms <= now_ms();
	struct promote_worker_job *job = p->job;
	struct stats *before;
	int r;

	p->is_busy = true;
	if (!job)
		p->is_wanting = false;
	pthread_mutex_unlock(&crew.lock);
	before = stats_enter(p->tree->stats);
	r = job ? do_job(p, job) : do_round(p);
	if (!job && r == 0 && is_time_to_settle && p->n_unsettled)
		settle(p);
	stats_enter(before);
	pthread_mutex_lock(&crew.lock);
	p->is_busy = false;
	p->at_ms = now_ms() + pause_after(p, r);
	if (job)
		end_job_locked(p, r);
	else if (r < 0)
		p->is_wanting = true;
	if (!p->n_unsettled)
		p->settle_ms = NEVER;
	else if (p->settle_ms == NEVER)
		p->settle_ms =
			now_ms() + (p->mode == PROMOTE_POLICY_EAGER ? SETTLE_EAGER_MS : SETTLE_MS);
	pthread_cond_broadcast(&crew.done);
}

static void *run(void *arg)
{
	struct worker *me = arg;

	/* Only this thread: programs and the threads that answer them come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	LOCK_SCOPE(&crew.lock);
	while (!me->is_ending) {
		uint64_t until;
		struct promote_worker *p = next_locked(now_ms(), &until);

		if (p)
			serve_locked(p);
		else
			wait_locked(&crew.wake, until);
	}
	return NULL;
}

static int have_worker_locked(void)
{
	struct worker *me;
	int r;

	if (crew.worker)
		return 0;
	me = calloc(1, sizeof(*me));
	if (!me)
		return -ENOMEM;
	r = -pthread_create(&me->thread, NULL, run, me);
	if (r < 0)
		free(me);
	else
		crew.worker = me;
	return r;
}

/* ---- mounts ---- */

static void note_own(void *arg)
{
	struct promote_worker *p = arg;

	LOCK_SCOPE(&crew.lock);
	p->is_wanting = true;
	pthread_cond_signal(&crew.wake);
}

int promote_worker_start(struct union_fs *t, enum promote_policy_mode mode, uint64_t rate,
			 struct promote_worker **ret)
{
	struct promote_worker *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->tree = t;
	p->mode = mode;
	p->rate.rate = mode == PROMOTE_POLICY_AUTO ? rate : 0;
	p->settle_ms = NEVER;
	t->on_own = note_own;
	t->on_own_arg = p;
	LOCK_SCOPE(&crew.lock);
	r = mode == PROMOTE_POLICY_OFF ? 0 : have_worker_locked();
	if (r < 0) {
		free(p);
		return r;
	}
	list_add_tail(&crew.mounts, &p->link);
	/* Files of earlier mounts may be waiting. */
	p->is_wanting = mode != PROMOTE_POLICY_OFF && mapfile_count(t->map) > 0;
	t->is_armed = mode != PROMOTE_POLICY_OFF && !p->is_wanting;
	if (p->is_wanting)
		pthread_cond_signal(&crew.wake);
	*ret = p;
	return 0;
}

void promote_worker_stop(struct promote_worker *p)
{
	struct worker *last = NULL;

	if (!p)
		return;
	p->tree->is_armed = false;
	p->is_stopping = true;
	pthread_mutex_lock(&crew.lock);
	pthread_cond_broadcast(&crew.wake);
	while (p->is_busy)
		pthread_cond_wait(&crew.done, &crew.lock);
	end_job_locked(p, -ECANCELED);
	list_del(&p->link);
	if (list_is_empty(&crew.mounts) && crew.worker) {
		last = crew.worker;
		last->is_ending = true;
		crew.worker = NULL;
		pthread_cond_broadcast(&crew.wake);
	}
	pthread_mutex_unlock(&crew.lock);
	if (last) {
		pthread_join(last->thread, NULL);
		free(last);
	}
	free(p->lost);
	free(p);
}

/* ---- jobs ---- */

int promote_worker_ask(struct promote_worker *p, struct promote_worker_job **ret)
{
	struct promote_worker_job *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return -ENOMEM;
	LOCK_SCOPE(&crew.lock);
	r = p->job ? -EBUSY : p->is_stopping ? -ECANCELED : have_worker_locked();
	if (r < 0) {
		free(j);
		return r;
	}
	j->of = p;
	p->job = j;
	crew.n_jobs++;
	pthread_cond_broadcast(&crew.wake);
	*ret = j;
	return 0;
}

int promote_worker_job_wait(struct promote_worker_job *j, unsigned timeout_ms,
			    struct promote_worker_progress *ret)
{
	const uint64_t until = now_ms() + timeout_ms;

	LOCK_SCOPE(&crew.lock);
	while (j->of && now_ms() < until)
		wait_locked(&crew.done, until);
	*ret = j->progress;
	return j->of ? 1 : j->result;
}

void promote_worker_job_free(struct promote_worker_job *j)
{
	pthread_mutex_lock(&crew.lock);
	j->is_given_up = true;
	while (j->of)
		pthread_cond_wait(&crew.done, &crew.lock);
	pthread_mutex_unlock(&crew.lock);
	free(j);
}
