// SPDX-License-Identifier: Apache-2.0
#include "snapshot_squash.h"

#include "answer_gate.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/promote_policy.h"
#include "veneer/base/stats.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/branch_merge.h"
#include "veneer/mount/mount_squash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_MS	   100
#define NICE	   10 /* below programs and the threads that answer them */
#define ENTRY_COST 4096 /* bytes: about the cost of a name on a file system */
#define TRIES	   8 /* as snapshot_take.c */
#define RETRY_US   10000u

struct squashing {
	struct snapshot_squash *ask;
	struct mount_squash squash;
	int upper_fd;
	bool is_found;
	int result;
	uint64_t number; /* the present number of the mount */
	int64_t told_ms;
	struct snapshot_merge_progress counted; /* already in the mount's statistics */
	struct promote_policy_rate rate;
	uint64_t spent; /* part of the progress that the rate has been charged for */
};

static bool read_name(const char *text, size_t len, char ret[BRANCH_CHAIN_NAME_MAX + 1])
{
	if (len > BRANCH_CHAIN_NAME_MAX)
		return false;
	memcpy(ret, text, len);
	ret[len] = '\0';
	return !len || branch_chain_is_name(ret);
}

/* Accepts digits only. */
static bool read_rate(const char *text, size_t len, uint64_t *ret)
{
	char digits[24], *end;

	if (!len || len >= sizeof(digits))
		return false;
	memcpy(digits, text, len);
	digits[len] = '\0';
	if (strspn(digits, "0123456789") < len)
		return false;
	errno = 0;
	*ret = strtoull(digits, &end, 10);
	return !errno && !*end;
}

bool snapshot_squash_names(const struct wire_message *m, struct snapshot_squash *ret)
{
	const char *at = m->text, *end = at + m->text_len;
	const char *first = memchr(at, '\n', m->text_len);
	const char *second = first ? memchr(first + 1, '\n', (size_t)(end - first - 1)) : NULL;
	const char *to_end = second ?: end;

	ret->rate = 0;
	return first && read_name(at, (size_t)(first - at), ret->from) &&
	       read_name(first + 1, (size_t)(to_end - first - 1), ret->to) &&
	       (!second || read_rate(second + 1, (size_t)(end - second - 1), &ret->rate));
}

/* s->upper_fd becomes the root of the upper, which outlives the mount's reopening. */
static void open_upper(struct mount *m, const struct served_place *at, void *arg)
{
	struct squashing *s = arg;

	(void)at;
	s->result = -EROFS;
	if (!m->tree.upper || m->is_frozen)
		return;
	s->upper_fd = fcntl(m->tree.upper->rootfd, F_DUPFD_CLOEXEC, 3);
	s->result = s->upper_fd < 0 ? -errno : 0;
}

static bool is_upper(const struct mount *m, int fd)
{
	struct stat now, then;

	return m->tree.upper && fstat(m->tree.upper->rootfd, &now) == 0 && fstat(fd, &then) == 0 &&
	       now.st_dev == then.st_dev && now.st_ino == then.st_ino;
}

static void begin_there(struct mount *m, const struct served_place *at, void *arg)
{
	struct squashing *s = arg;
	const struct snapshot_squash *q = s->ask;

	(void)at;
	if (!is_upper(m, s->upper_fd))
		s->result = -EAGAIN;
	else
		s->result = mount_squash_begin(m, *q->from ? q->from : NULL, *q->to ? q->to : NULL,
					       &s->squash);
}

/* The lock is awaited while the mount is not in use here: a snapshot that has the lock waits until
 * nobody uses the mount. -ENOENT: there is no such mount. */
static int begin(struct squashing *s)
{
	const struct snapshot_squash *q = s->ask;
	_cleanup_(closep) int lock = -1;

	s->is_found = mount_table_at(q->mount_table, q->target, open_upper, s);
	if (!s->is_found || s->result < 0)
		return s->is_found ? s->result : -ENOENT;
	lock = branch_dir_lock(s->upper_fd);
	if (lock < 0)
		return lock == -ENOENT ? -EALREADY : lock == -EBUSY ? -EAGAIN : lock;
	s->is_found = mount_table_at(q->mount_table, q->target, begin_there, s);
	return s->is_found ? s->result : -ENOENT;
}

static void look(struct mount *m, const struct served_place *at, void *arg)
{
	struct squashing *s = arg;

	(void)m;
	s->number = at->number;
}

/* The number changes when another snapshot is taken. */
static uint64_t number_of(struct squashing *s)
{
	s->number = 0;
	mount_table_at(s->ask->mount_table, s->ask->target, look, s);
	return s->number;
}

static void count_there(struct mount *m, const struct served_place *at, void *arg)
{
	const struct squashing *s = arg;
	const struct snapshot_merge_progress *p = &s->squash.merge.progress;
	struct stats *before;

	(void)at;
	before = stats_enter(m->tree.stats);
	stats_add(STATS_SQUASHED_ENTRIES, p->entries - s->counted.entries);
	stats_add(STATS_SQUASHED_BYTES, p->bytes - s->counted.bytes);
	if (s->squash.is_published)
		stats_add(STATS_SQUASHED_SNAPSHOTS, s->squash.n - 1);
	stats_enter(before);
}

/* Add the progress since the last call to the statistics. */
static void count(struct squashing *s)
{
	mount_table_at(s->ask->mount_table, s->ask->target, count_there, s);
	s->counted = s->squash.merge.progress;
}

static int tell(struct squashing *s)
{
	const int64_t now = clock_ms();

	if (now - s->told_ms < STEP_MS)
		return 0;
	s->told_ms = now;
	count(s);
	return s->ask->step(s->ask->arg, &s->squash.merge.progress) < 0 ? -ECANCELED : 0;
}

/* Called with nothing locked. */
static int step(void *arg, const struct snapshot_merge_progress *p)
{
	struct squashing *s = arg;
	const uint64_t cost = p->entries * ENTRY_COST + p->bytes;
	uint64_t delay;
	int r = tell(s);

	if (!s->ask->rate)
		return r;
	promote_policy_spend(&s->rate, cost - s->spent);
	s->spent = cost;
	while (r == 0 && (delay = promote_policy_delay_ms(&s->rate, (uint64_t)clock_ms())) > 0) {
		usleep((useconds_t)MIN(delay, STEP_MS) * 1000);
		r = tell(s);
	}
	return r;
}

static int fill(struct squashing *s)
{
	/* Only this thread, which serves this request alone. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	return mount_squash_fill(&s->squash, step, s);
}

/* ---- the exchange ---- */

static int settle(void *arg, struct mount *m, const struct mount_record *d)
{
	(void)arg;
	(void)d;
	return mount_squash_settle(m);
}

static int check(void *arg, struct mount *m, const struct mount_record *d)
{
	struct squashing *s = arg;

	(void)d;
	return mount_squash_check(m, &s->squash);
}

static int take(void *arg, int upper_fd)
{
	struct squashing *s = arg;

	(void)upper_fd;
	return mount_squash_publish(&s->squash);
}

static int try_to_publish(struct squashing *s)
{
	const struct mount_table_step how = {
		.keeps_upper = true, .begin = settle, .prepare = check, .take = take, .arg = s
	};
	_cleanup_(closep) int lock = branch_dir_lock(s->squash.rootfd);
	uint64_t number = lock < 0 ? 0 : number_of(s);

	if (lock < 0)
		return lock == -EBUSY ? -EAGAIN : lock;
	return number ? mount_table_replace(s->ask->mount_table, number, &how) : -ENOENT;
}

/* Retry: the kernel reports a close some time after the program has gone on. */
static int publish(struct squashing *s)
{
	int r = -EAGAIN;

	answer_gate_enter();
	s->ask->is_in_gate = true;
	for (int k = 0; k < TRIES && !s->squash.is_published; k++) {
		if (k)
			usleep(RETRY_US << (k - 1));
		r = try_to_publish(s);
		if (r != -EUSERS && r != -EAGAIN && r != -EBUSY && r != -ENOENT)
			break;
	}
	return r == -ENOENT ? -ECANCELED : r;
}

static const char *why(int r)
{
	switch (r) {
	case -EOPNOTSUPP:
		return "needs a server with a supervisor, Linux 6.9 if the mount has locks=server, "
		       "and an upper whose file system can exchange two "
		       "names";
	case -EUSERS:
		return "a file is open that was removed, or a mount uses one of the snapshots";
	case -ECANCELED:
		return "the mount ended meanwhile";
	default:
		return mount_squash_reason(r);
	}
}

static void say(const struct squashing *s, int r, char *err, size_t err_size)
{
	if (s->squash.merge.where)
		snprintf(err, err_size, "%s: %s", s->squash.merge.where, why(r));
	else
		snprintf(err, err_size, "%s", why(r));
}

int snapshot_squash(struct snapshot_squash *q, char *err, size_t err_size)
{
	struct squashing s = {
		.ask = q, .squash = MOUNT_SQUASH_NONE, .upper_fd = -1, .rate = { .rate = q->rate }
	};
	int r;

	*err = '\0';
	r = begin(&s) ?: fill(&s) ?: publish(&s);
	count(&s);
	q->n = s.squash.n;
	q->progress = s.squash.merge.progress;
	if (r == -EALREADY)
		q->n = r = 0;
	else if (r < 0 && s.is_found)
		say(&s, r, err, err_size);
	mount_squash_release(&s.squash);
	closep(&s.upper_fd);
	return s.is_found && r == -ENOENT ? -ESRCH : r;
}

void snapshot_squash_leave(struct snapshot_squash *q)
{
	if (q->is_in_gate)
		answer_gate_leave();
	q->is_in_gate = false;
}

/* ---- in the background ---- */

struct choice {
	struct snapshot_squash ask;
	char path[PATH_MAX]; /* for the log */
	bool is_found;
};

/* The longest run of neighbours among the oldest snapshots, from the lowest on. */
static bool choose(struct mount *m, struct snapshot_squash *q)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(freep) uint64_t *ids = NULL;
	size_t n;

	if (!m->opts.squash || !m->tree.upper || m->is_frozen ||
	    branch_dir_load(m->tree.upper->rootfd, &c) < 0)
		return false;
	ids = calloc(c.n + 1, sizeof(*ids));
	n = ids ? branch_merge_choose_oldest(&c, m->opts.squash, ids) : 0;
	if (!n)
		return false;
	strcpy(q->to, branch_chain_by_id(&c, ids[0])->name);
	strcpy(q->from, branch_chain_by_id(&c, ids[n - 1])->name);
	return true;
}

static void choose_there(struct mount *m, const struct served_place *at, void *arg)
{
	struct choice *c = arg;

	(void)at;
	c->is_found = choose(m, &c->ask);
	snprintf(c->path, sizeof(c->path), "%s", m->opts.mountpoint);
}

static int end_with_the_server(void *arg, const struct snapshot_merge_progress *p)
{
	(void)p;
	return mount_table_ends(arg) ? -ECANCELED : 0;
}

static int squash_chosen(struct choice *c)
{
	char err[PATH_MAX * 2];
	int r = snapshot_squash(&c->ask, err, sizeof(err));

	snapshot_squash_leave(&c->ask);
	if (r == 0)
		log_info("%s: %zu of its oldest snapshots became one", c->path, c->ask.n);
	else if (r != -ENOENT && !mount_table_ends(c->ask.mount_table))
		log_warn("%s: its oldest snapshots stay as they are: %s", c->path, err);
	return r;
}

void snapshot_squash_oldest(struct mount_table *t, const struct mount_table_target *target)
{
	static atomic_flag is_running = ATOMIC_FLAG_INIT;
	struct choice c = { .ask = { .mount_table = t,
				     .target = target,
				     .rate = PROMOTE_POLICY_RATE_DEFAULT,
				     .step = end_with_the_server,
				     .arg = t } };

	if (atomic_flag_test_and_set(&is_running))
		return;
	do {
		c.is_found = false;
		mount_table_at(t, target, choose_there, &c);
	} while (c.is_found && squash_chosen(&c) == 0 && c.ask.n > 1);
	atomic_flag_clear(&is_running);
}
