// SPDX-License-Identifier: Apache-2.0
#include "veneer/jobs/flat_copy_worker.h"

#include "mount_registry.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/promote_policy.h"
#include "veneer/base/stats.h"
#include "veneer/data/flat_copy.h"
#include "veneer/layer/source_flat.h"
#include "veneer/passthrough/passthrough_select.h"
#include "veneer/sys/file.h"
#include "veneer/sys/pressure.h"
#include "veneer/sys/worker.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define QUEUE_MAX   64 /* files */
#define FILES_MAX   64 /* copies of the process: each holds a descriptor */
#define NICE	    10
#define PAUSE_MS    1000u /* under pressure */
#define PRESSURE_MS 100u /* the kernel's averages do not change much faster */

struct flat_copy_worker {
	struct mount_registry_member member;
	struct union_fs *tree;
	uint64_t left; /* bytes that it may still copy: the thread's */
	bool minds_followers; /* a file that is followed is not passed through */
	_Atomic bool is_stopping;
};

struct wanted {
	struct flat_copy_worker *owner;
	struct source *src;
	off_t size;
};

static struct {
	struct mount_registry mounts;
	GUARDED_BY(mounts.lock) struct wanted queue[QUEUE_MAX];
	GUARDED_BY(mounts.lock) size_t n;
	GUARDED_BY(mounts.lock) struct worker *worker; /* NULL: nothing was wanted yet */
	struct promote_policy_rate rate; /* the thread's, as are */
	uint64_t pressure_ms; /* when it last asked, and */
	bool is_pressed; /* the answer */
} flat = { .mounts = MOUNT_REGISTRY_INIT(flat.mounts),
	   .rate = { .rate = PROMOTE_POLICY_WRITTEN_RATE } };

/* ---- the thread ---- */

/* Unpin the owner of the last one, w->owner (NULL: none), and pin that of the next. False: there is
 * none. */
static bool take(const struct worker *me, struct wanted *w)
{
	LOCK_SCOPE(&flat.mounts.lock);
	if (w->owner)
		mount_registry_unpin(&flat.mounts, &w->owner->member);
	w->owner = NULL;
	/* Another thread works since the last mount left. */
	if (!flat.n || me != flat.worker)
		return false;
	*w = flat.queue[0];
	memmove(flat.queue, flat.queue + 1, --flat.n * sizeof(*flat.queue));
	w->owner->member.is_pinned = true;
	return true;
}

static bool is_pressed(uint64_t now)
{
	if (now - flat.pressure_ms >= PRESSURE_MS) {
		flat.pressure_ms = now;
		flat.is_pressed = promote_policy_is_pressed(
			PROMOTE_POLICY_WRITTEN, pressure_some("memory"), pressure_some("io"));
	}
	return flat.is_pressed;
}

struct step {
	struct worker *me;
	const struct wanted *wanted;
	uint64_t rest; /* to be copied */
};

static int go_on(void *arg, uint64_t bytes)
{
	struct step *s = arg;
	struct flat_copy_worker *owner = s->wanted->owner;

	stats_add(STATS_FLAT_BYTES, bytes);
	promote_policy_spend(&flat.rate, bytes);
	owner->left -= MIN(owner->left, bytes);
	s->rest -= MIN(s->rest, bytes);
	while (!owner->is_stopping) {
		const uint64_t now = (uint64_t)clock_ms();
		uint64_t delay = promote_policy_delay_ms(&flat.rate, now);

		if (!delay && is_pressed(now))
			delay = PAUSE_MS;
		if (!delay)
			return file_leaves_room(owner->tree->workfd, PROMOTE_POLICY_FREE_PART,
						s->rest);
		worker_wait(s->me, (int64_t)(now + MIN(delay, PAUSE_MS)));
	}
	return -ECANCELED;
}

static int make(struct worker *me, const struct wanted *w)
{
	struct step step = { .me = me, .wanted = w, .rest = (uint64_t)w->size };
	const struct flat_copy_pace pace = { .go_on = go_on, .arg = &step };
	int r = file_leaves_room(w->owner->tree->workfd, PROMOTE_POLICY_FREE_PART, step.rest);

	if (step.rest > w->owner->left)
		return -EDQUOT;
	if (source_flat_count() >= FILES_MAX)
		return -EMFILE;
	r = r ?: flat_copy_make(w->src, w->size, w->owner->tree->workfd, &pace);
	if (r == 1)
		stats_add(STATS_FLAT_FILES, 1);
	return MIN(r, 0);
}

/* When it has been read so much again, it may be possible. */
static bool may_succeed_later(int r)
{
	return r != -EXDEV && r != -EOPNOTSUPP && r != -EDQUOT && r != -ESTALE;
}

static void make_wanted(struct worker *me, const struct wanted *w)
{
	struct stats *before = stats_enter(w->owner->tree->stats);
	int r = make(me, w);

	if (r < 0)
		log_debug("%s: %s: is not copied for its readers: %s", w->src->layer->path,
			  w->src->path, strerror(-r));
	if (r < 0 && may_succeed_later(r))
		w->src->flat_reads = 0;
	stats_enter(before);
}

static void run(struct worker *me, void *arg)
{
	struct wanted w = { .owner = NULL };

	(void)arg;
	/* This thread alone. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (worker_wait(me, WORKER_NO_LIMIT))
		while (take(me, &w))
			make_wanted(me, &w);
}

/* ---- the mount ---- */

int flat_copy_worker_start(struct union_fs *t, uint64_t max_bytes, bool minds_followers,
			   struct flat_copy_worker **ret)
{
	struct flat_copy_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->tree = t;
	w->left = max_bytes;
	w->minds_followers = minds_followers;
	LOCK_SCOPE(&flat.mounts.lock);
	mount_registry_enter(&flat.mounts, &w->member);
	*ret = w;
	return 0;
}

static void purge_locked(const struct flat_copy_worker *w) REQUIRES(flat.mounts.lock)
{
	size_t kept = 0;

	for (size_t k = 0; k < flat.n; k++) {
		/* Its readers are another mount's, too. */
		if (flat.queue[k].owner == w)
			flat.queue[k].src->flat_reads = 0;
		else
			flat.queue[kept++] = flat.queue[k];
	}
	flat.n = kept;
}

void flat_copy_worker_stop(struct flat_copy_worker *w)
{
	struct worker *last = NULL;

	if (!w)
		return;
	w->is_stopping = true;
	mutex_lock(&flat.mounts.lock);
	purge_locked(w);
	worker_wake(flat.worker);
	mount_registry_leave(&flat.mounts, w->member.number);
	if (list_is_empty(&flat.mounts.members)) {
		last = flat.worker;
		flat.worker = NULL;
	}
	mutex_unlock(&flat.mounts.lock);
	worker_stop(last);
	free(w);
}

static int enqueue(const struct wanted *w)
{
	int r = 0;

	LOCK_SCOPE(&flat.mounts.lock);
	if (!flat.worker)
		r = worker_start(run, NULL, &flat.worker);
	if (r < 0 || flat.n == QUEUE_MAX)
		return r < 0 ? r : -EAGAIN;
	flat.queue[flat.n++] = *w;
	worker_wake(flat.worker);
	return 0;
}

void flat_copy_worker_read(struct flat_copy_worker *w, struct inode *i, size_t len)
{
	struct wanted wanted = { .owner = w };
	struct image_entry *e = w ? inode_lower(i) : NULL;
	struct stat st;

	/* Source and attributes are known, as the file was read. */
	if (!e || image_source(w->tree->image, e, &wanted.src) < 0 || source_is_plain(wanted.src) ||
	    image_stat(w->tree->image, e, &st) < 0)
		return;
	wanted.size = st.st_size;
	if (flat_copy_note_read(wanted.src, len, wanted.size) &&
	    source_flat_is_possible(wanted.src) &&
	    passthrough_select_gains_copy(w->tree, i, w->minds_followers) && enqueue(&wanted) < 0)
		wanted.src->flat_reads = 0;
}
