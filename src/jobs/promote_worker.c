// SPDX-License-Identifier: Apache-2.0
/* One round of a mount: list the files of the map that the policy picks, find their inodes in
 * memory, then in the upper, and complete one after the other by chunks. A request, memory or I/O
 * pressure, or the end of the mount stops the round between two chunks. Finished chunks stay.
 *
 * A mount wants a round when blocks became own since the last one began (tree->is_armed), or when
 * the last one was stopped. PROMOTE_POLICY_WRITTEN: when a file was written so often; a round then
 * looks at such files that are in memory, and does not wait for quiet. Some time after files left
 * the map, it is written anew without them: then nothing can bring their marks back.
 *
 * promoter.mounts.lock guards the list and the fields that say so; it is never held over work. */
#include "veneer/jobs/promote_worker.h"

#include "mount_registry.h"
#include "promote_find.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/data/materialize.h"
#include "veneer/jobs/upper_walk.h"
#include "veneer/sys/file.h"
#include "veneer/sys/pressure.h"
#include "veneer/sys/worker.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

#define NICE		 10
#define NEVER		 ((uint64_t)WORKER_NO_LIMIT)
#define PAUSE_MS	 1000u /* between two checks whether a mount is quiet */
#define ROUND_MS	 50u /* at least, from the end of a round to the next of an eager mount */
#define NO_ROOM_MS	 60000u /* after a disk was full */
#define REWRITE_MS	 60000u /* from a file's end to the map's being written without it */
#define REWRITE_EAGER_MS 2000u
#define PRESSURE_MS	 100u /* the kernel's averages do not change much faster */
#define FINISH_COST	 (64u << 10) /* the end of a file against the rate: a sync */

static struct {
	struct mount_registry mounts;
	GUARDED_BY(mounts.lock) struct worker *worker; /* NULL: no mount wants it */
	_Atomic unsigned n_jobs; /* written under the lock */
} promoter = { .mounts = MOUNT_REGISTRY_INIT(promoter.mounts) };

struct promote_worker {
	struct union_fs *tree;
	enum promote_policy_mode mode;
	struct promote_policy_rate rate; /* the thread's own, as are: */
	struct promote_policy_quiet quiet;
	bool is_pressed; /* as of pressure_ms */
	uint64_t pressure_ms;
	struct promote_find_unfound unfound;
	uint64_t left; /* bytes that PROMOTE_POLICY_WRITTEN may still bring in */
	size_t n_unwritten; /* files that left the map since it was written */
	_Atomic bool is_stopping;
	GUARDED_BY(promoter.mounts.lock) struct mount_registry_member member;
	GUARDED_BY(promoter.mounts.lock) bool wants_round;
	GUARDED_BY(promoter.mounts.lock) uint64_t at_ms; /* not before this */
	GUARDED_BY(promoter.mounts.lock) uint64_t rewrite_ms; /* NEVER: not to be rewritten */
	GUARDED_BY(promoter.mounts.lock) struct promote_worker_job *job; /* NULL: none */
};

struct promote_worker_job {
	GUARDED_BY(promoter.mounts.lock) struct promote_worker *of; /* NULL: ended */
	GUARDED_BY(promoter.mounts.lock) bool is_cancelled;
	GUARDED_BY(promoter.mounts.lock) struct promote_worker_progress progress;
	GUARDED_BY(promoter.mounts.lock) int result;
};

static uint64_t now_ms(void)
{
	return (uint64_t)clock_ms();
}

/* ---- whether to go on ---- */

static bool is_pressed(struct promote_worker *p)
{
	const uint64_t now = now_ms();

	if (now - p->pressure_ms >= PRESSURE_MS) {
		p->is_pressed = promote_policy_is_pressed(p->mode, pressure_some("memory"),
							  pressure_some("io"));
		p->pressure_ms = now;
	}
	return p->is_pressed;
}

/* Does the mode leave the processors and the disk to others for now? */
static bool gives_way(struct promote_worker *p)
{
	switch (p->mode) {
	case PROMOTE_POLICY_AUTO:
		return !promote_policy_is_quiet(&p->quiet, stats_requests(), now_ms()) ||
		       is_pressed(p);
	case PROMOTE_POLICY_WRITTEN:
		return is_pressed(p);
	default:
		return false;
	}
}

/* Before each step of a round. The worker stays while a mount is pinned, as p is. 0; -EAGAIN:
 * later; -ECANCELED. */
static int go_on(struct promote_worker *p) UNCHECKED_LOCKS
{
	for (;;) {
		const uint64_t delay = promote_policy_delay_ms(&p->rate, now_ms());

		if (p->is_stopping)
			return -ECANCELED;
		if (promoter.n_jobs || gives_way(p))
			return -EAGAIN;
		if (!delay)
			return 0;
		worker_wait(promoter.worker, (int64_t)(now_ms() + MIN(delay, PAUSE_MS)));
	}
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
	p->left -= MIN(p->left, w->bytes - bytes);
	promote_policy_spend(&p->rate, w->bytes - bytes);
	return r;
}

/* 1: it has left the map. */
static int finish_file(struct promote_worker *p, struct materialize *w, struct inode *i)
{
	int r = inode_partial_id(i) ? materialize_finish(w, i) : 0;

	promote_policy_spend(&p->rate, FINISH_COST);
	if (r != 1)
		return r;
	stats_add(STATS_PROMOTED_FILES, 1);
	p->n_unwritten++;
	return 1;
}

/* Files that are still written are not worth the last room of a disk. */
static int check_room(const struct promote_worker *p, uint64_t bytes)
{
	return p->mode != PROMOTE_POLICY_WRITTEN
		       ? 0
		       : file_leaves_room(p->tree->upper->rootfd, PROMOTE_POLICY_FREE_PART, bytes);
}

/* A whole file that is expected to be written, if the rest of the limit suffices. */
static int fill_whole(struct promote_worker *p, struct materialize *w, struct inode *i)
{
	const file_id_t id = inode_partial_id(i);
	uint64_t clip, missing;
	int r = 0;

	if (mapfile_clip(p->tree->map, id, &clip) < 0)
		return 0;
	missing = promote_find_missing(p->tree->map, id, clip);
	if (missing > p->left || check_room(p, missing) < 0)
		return 0;
	for (uint64_t chunk = 0; r == 0 && chunk * CHUNK_BYTES < clip; chunk++)
		r = go_on(p) ?: fill_chunk(p, w, i, chunk);
	return r;
}

/* Complete the chunks of one file that the policy picks, up to this pass. */
static int fill_pass(struct promote_worker *p, struct materialize *w, struct inode *i,
		     unsigned pass)
{
	const file_id_t id = inode_partial_id(i);
	struct mapfile *map = p->tree->map;
	uint64_t chunk = 0, bits[2], clip;
	int r;

	for (; (r = mapfile_next_chunk(map, id, &chunk, bits)) == 1; chunk++) {
		if (mapfile_clip(map, id, &clip) < 0 || chunk * CHUNK_BYTES >= clip)
			break;
		if (!p->left || !promote_find_takes_chunk(clip, chunk, bits) ||
		    promote_find_pass(clip, chunk, bits) > pass)
			continue;
		r = go_on(p);
		r = r ?: fill_chunk(p, w, i, chunk);
		if (r < 0)
			return r;
	}
	return 0;
}

/* In passes while the file is written: a part that is written often costs a copy with most
 * writes. */
static int promote_file(struct promote_worker *p, struct materialize *w, struct inode *i)
{
	const unsigned last = PROMOTE_POLICY_PASSES - 1;
	int r = promote_find_is_expected(p->tree, i) ? fill_whole(p, w, i) : 0;

	for (unsigned pass = p->mode == PROMOTE_POLICY_WRITTEN ? 0 : last; r == 0 && pass <= last;
	     pass++)
		r = fill_pass(p, w, i, pass);
	if (r < 0 || mapfile_is_complete(p->tree->map, inode_partial_id(i)) != 1)
		return r;
	r = go_on(p);
	r = r ?: finish_file(p, w, i);
	return r < 0 ? r : 0;
}

/* ---- a round ---- */

static int promote_found(struct promote_worker *p, const struct promote_find *found,
			 struct materialize *w)
{
	int e = 0;

	for (size_t k = 0; e == 0 && k < found->n; k++) {
		struct inode *i = promote_find_inode(found, k);

		if (!i)
			continue;
		e = promote_file(p, w, i);
		/* The error is of this file alone, and was logged. */
		if (e != -EAGAIN && e != -ECANCELED && !promote_find_is_fatal(e))
			e = 0;
	}
	return e;
}

static int go_on_finding(void *arg)
{
	return go_on(arg);
}

static int do_round(struct promote_worker *p)
{
	struct promote_find found = { .tree = p->tree,
				      .mode = p->mode,
				      .unfound = &p->unfound,
				      .go_on = go_on_finding,
				      .arg = p };
	struct materialize w;
	int r;

	p->tree->is_armed = p->mode != PROMOTE_POLICY_WRITTEN;
	r = go_on(p) ?: check_room(p, 0);
	if (r == 0)
		r = promote_find_run(&found);
	if (r == 0 && found.n)
		r = materialize_init(&w, p->tree, false);
	if (r == 0 && found.n) {
		r = promote_found(p, &found, &w);
		materialize_release(&w);
	}
	promote_find_release(&found);
	return r;
}

/* ---- the map without finished files ---- */

static void rewrite_map(struct promote_worker *p)
{
	struct union_fs *t = p->tree;
	const uint64_t before = mapfile_now_ms();

	p->n_unwritten = 0;
	if (!t->is_volatile) {
		if (syncfs(t->upper->rootfd) < 0) {
			t->sync_error = -errno;
			return;
		}
		mapfile_gone_for_good(t->map, before);
	}
	/* A failure is logged there; the old map goes on. */
	mapfile_checkpoint(t->map, true);
}

/* ---- jobs: all files of a mount, on request ---- */

struct job_run {
	struct promote_worker *p;
	struct promote_worker_job *job;
	struct materialize w;
	struct promote_worker_progress s;
};

static int check_job(struct job_run *j)
{
	LOCK_SCOPE(&promoter.mounts.lock);
	j->s.bytes = j->w.bytes;
	j->s.cloned = j->w.cloned;
	j->job->progress = j->s;
	return j->p->is_stopping || j->job->is_cancelled ? -ECANCELED : 0;
}

static int job_file(struct job_run *j, struct inode *i)
{
	const file_id_t id = inode_partial_id(i);
	struct mapfile *map = j->p->tree->map;
	uint64_t clip;
	blk_t end, n;
	int r = inode_is_damaged(i) ? -EIO : mapfile_clip(map, id, &clip);

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
	return r == -ENOENT && !inode_partial_id(i) ? 0 : r;
}

static int skip_file(struct job_run *j, struct inode *parent, const char *name, int r)
{
	_cleanup_(freep) char *path = inode_name_path(j->p->tree, parent, name);

	if (promote_find_is_fatal(r) || r == -ECANCELED)
		return r;
	/* The file was removed, or renamed, meanwhile. */
	if (r == -ENOENT || r == -ESTALE)
		return 0;
	log_error("%s/%s: cannot be completed: %s", j->p->tree->upper->path, path ? path : name,
		  strerror(-r));
	j->s.left++;
	return 0;
}

static int job_entry(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct job_run *j = arg;
	int r = check_job(j);

	if (r < 0 || !inode_is_regular(i) || !(inode_partial_id(i) || inode_is_damaged(i)))
		return r;
	r = job_file(j, i);
	if (r == 1)
		j->s.files++;
	return r < 0 ? skip_file(j, parent, name, r) : 0;
}

static int job_miss(void *arg, struct inode *parent, const char *name, int error)
{
	return skip_file(arg, parent, name, error);
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
	if (p->n_unwritten && r != -ECANCELED)
		rewrite_map(p);
	check_job(&j);
	materialize_release(&j.w);
	return r;
}

/* ---- the thread ---- */

/* The next mount; NULL: none before *ret_until. */
static struct promote_worker *next_locked(uint64_t now, uint64_t *ret_until)
	REQUIRES(promoter.mounts.lock)
{
	struct promote_worker *next = NULL;

	*ret_until = NEVER;
	for (struct mount_registry_member *m = NULL;
	     (m = mount_registry_next(&promoter.mounts, m));) {
		struct promote_worker *p = container_of(m, struct promote_worker, member);
		uint64_t at = p->job ? 0 : p->wants_round ? p->at_ms : NEVER;

		if (p->is_stopping)
			continue;
		if (!p->job && p->rewrite_ms < at)
			at = MAX(p->rewrite_ms, p->at_ms);
		if (at <= now && (!next || (p->job && !next->job)))
			next = p;
		if (at < *ret_until)
			*ret_until = at;
	}
	return next;
}

static void end_job_locked(struct promote_worker *p, int result) REQUIRES(promoter.mounts.lock)
{
	struct promote_worker_job *j = p->job;

	if (!j)
		return;
	p->job = NULL;
	j->of = NULL;
	j->result = result;
	promoter.n_jobs--;
	pthread_cond_broadcast(&promoter.mounts.unpinned);
}

static uint64_t pause_after(const struct promote_worker *p, int r)
{
	if (promote_find_is_fatal(r))
		return NO_ROOM_MS;
	return p->mode == PROMOTE_POLICY_EAGER ? ROUND_MS : PAUSE_MS;
}

/* Called, and returns, with the lock, which it drops while it works. */
static void serve_locked(struct promote_worker *p) REQUIRES(promoter.mounts.lock)
{
	const bool is_time_to_rewrite = p->rewrite_ms <= now_ms();
	struct promote_worker_job *job = p->job;
	struct stats *before;
	int r;

	p->member.is_pinned = true;
	if (!job)
		p->wants_round = false;
	mutex_unlock(&promoter.mounts.lock);
	before = stats_enter(p->tree->stats);
	r = job ? do_job(p, job) : do_round(p);
	if (!job && r == 0 && is_time_to_rewrite && p->n_unwritten)
		rewrite_map(p);
	stats_enter(before);
	mutex_lock(&promoter.mounts.lock);
	p->at_ms = now_ms() + pause_after(p, r);
	if (job)
		end_job_locked(p, r);
	else if (r < 0)
		p->wants_round = true;
	if (!p->n_unwritten)
		p->rewrite_ms = NEVER;
	else if (p->rewrite_ms == NEVER)
		p->rewrite_ms = now_ms() +
				(p->mode == PROMOTE_POLICY_EAGER ? REWRITE_EAGER_MS : REWRITE_MS);
	mount_registry_unpin(&promoter.mounts, &p->member);
}

/* Serve the next mount. 0, or when there will be one. */
static uint64_t serve_next(const struct worker *me)
{
	struct promote_worker *p;
	uint64_t until;

	LOCK_SCOPE(&promoter.mounts.lock);
	/* Another worker serves the mounts that were entered since the last one left. */
	if (me != promoter.worker)
		return NEVER;
	p = next_locked(now_ms(), &until);
	if (!p)
		return until;
	serve_locked(p);
	return 0;
}

static void run(struct worker *me, void *arg)
{
	uint64_t until = 0;

	(void)arg;
	/* This thread alone: programs and the threads that answer them come first. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (worker_wait(me, (int64_t)until))
		until = serve_next(me);
}

static int ensure_worker_locked(void) REQUIRES(promoter.mounts.lock)
{
	return promoter.worker ? 0 : worker_start(run, NULL, &promoter.worker);
}

/* ---- mounts ---- */

static void on_own(void *arg)
{
	struct promote_worker *p = arg;

	/* Where it will not be passed through, a complete file is written no faster. */
	if (p->mode == PROMOTE_POLICY_WRITTEN && (!p->tree->backing || p->tree->quota))
		return;
	LOCK_SCOPE(&promoter.mounts.lock);
	/* Most mounts have no such file, and no need of the thread. */
	if (ensure_worker_locked() < 0)
		return;
	p->wants_round = true;
	worker_wake(promoter.worker);
}

static bool looks_at_all(const struct promote_worker *p)
{
	return p->mode == PROMOTE_POLICY_AUTO || p->mode == PROMOTE_POLICY_EAGER;
}

int promote_worker_start(struct union_fs *t, enum promote_policy_mode mode, uint64_t rate,
			 uint64_t max_bytes, struct promote_worker **ret)
{
	struct promote_worker *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->tree = t;
	p->mode = mode;
	p->rate.rate = mode == PROMOTE_POLICY_AUTO	? rate
		       : mode == PROMOTE_POLICY_WRITTEN ? PROMOTE_POLICY_WRITTEN_RATE
							: 0;
	p->left = mode == PROMOTE_POLICY_WRITTEN ? max_bytes : UINT64_MAX;
	t->on_own = on_own;
	t->on_own_arg = p;
	LOCK_SCOPE(&promoter.mounts.lock);
	p->rewrite_ms = NEVER;
	r = looks_at_all(p) ? ensure_worker_locked() : 0;
	if (r < 0) {
		free(p);
		return r;
	}
	mount_registry_enter(&promoter.mounts, &p->member);
	/* Files of earlier mounts may be waiting. */
	p->wants_round = looks_at_all(p) && mapfile_count(t->map) > 0;
	t->is_armed = looks_at_all(p) && !p->wants_round;
	t->tells_written = mode == PROMOTE_POLICY_WRITTEN;
	if (p->wants_round)
		worker_wake(promoter.worker);
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
	mutex_lock(&promoter.mounts.lock);
	worker_wake(promoter.worker);
	mount_registry_leave(&promoter.mounts, p->member.number);
	end_job_locked(p, -ECANCELED);
	if (list_is_empty(&promoter.mounts.members))
		last = steal_ptr(&promoter.worker);
	mutex_unlock(&promoter.mounts.lock);
	worker_stop(last);
	free(p->unfound.ids);
	free(p);
}

/* ---- jobs ---- */

int promote_worker_ask(struct promote_worker *p, struct promote_worker_job **ret)
{
	struct promote_worker_job *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return -ENOMEM;
	LOCK_SCOPE(&promoter.mounts.lock);
	r = p->job ? -EBUSY : p->is_stopping ? -ECANCELED : ensure_worker_locked();
	if (r < 0) {
		free(j);
		return r;
	}
	j->of = p;
	p->job = j;
	promoter.n_jobs++;
	worker_wake(promoter.worker);
	*ret = j;
	return 0;
}

int promote_worker_job_wait(struct promote_worker_job *j, unsigned timeout_ms,
			    struct promote_worker_progress *ret)
{
	const uint64_t until = now_ms() + timeout_ms;

	LOCK_SCOPE(&promoter.mounts.lock);
	while (j->of && now_ms() < until)
		clock_wait(&promoter.mounts.unpinned, &promoter.mounts.lock, (int64_t)until);
	*ret = j->progress;
	return j->of ? 1 : j->result;
}

void promote_worker_job_free(struct promote_worker_job *j)
{
	mutex_lock(&promoter.mounts.lock);
	j->is_cancelled = true;
	while (j->of)
		pthread_cond_wait(&promoter.mounts.unpinned, &promoter.mounts.lock);
	mutex_unlock(&promoter.mounts.lock);
	free(j);
}
