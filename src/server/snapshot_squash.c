// SPDX-License-Identifier: Apache-2.0
#include "snapshot_squash.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/mount/mount_squash.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEP_MS	 100
#define NICE	 10 /* programs and the threads that answer them come first */
#define TRIES	 8 /* as snapshot_take.c */
#define RETRY_US 10000u

struct squashing {
	struct snapshot_squash *ask;
	struct mount_squash squash;
	bool is_found;
	int result;
	uint64_t number; /* of the mount, now */
	int64_t told_ms;
};

static bool read_name(const char *text, size_t len, char ret[BRANCH_CHAIN_NAME_MAX + 1])
{
	if (len > BRANCH_CHAIN_NAME_MAX)
		return false;
	memcpy(ret, text, len);
	ret[len] = '\0';
	return !len || branch_chain_is_name(ret);
}

bool snapshot_squash_names(const struct wire_message *m, struct snapshot_squash *ret)
{
	const char *end = memchr(m->text, '\n', m->text_len);
	const size_t n = end ? (size_t)(end - m->text) : 0;

	return end && read_name(m->text, n, ret->from) &&
	       read_name(end + 1, m->text_len - n - 1, ret->to);
}

static int begin(struct mount *m, struct squashing *s)
{
	const struct snapshot_squash *q = s->ask;
	_cleanup_(closep) int lock = -1;

	if (m->is_sb_member)
		return -EOPNOTSUPP;
	if (!m->tree.upper || m->is_frozen)
		return -EROFS;
	lock = branch_dir_lock(m->tree.upper->rootfd);
	if (lock < 0)
		return lock == -ENOENT ? -EALREADY : lock == -EBUSY ? -EAGAIN : lock;
	return mount_squash_begin(m, *q->from ? q->from : NULL, *q->to ? q->to : NULL, &s->squash);
}

static void begin_if_it_is(struct mount *m, const struct served_place *at, void *arg)
{
	struct squashing *s = arg;

	if (s->is_found || !mount_table_is_at(m, at, s->ask->target))
		return;
	s->is_found = true;
	s->result = begin(m, s);
}

static void look(struct mount *m, const struct served_place *at, void *arg)
{
	struct squashing *s = arg;

	if (!s->number && mount_table_is_at(m, at, s->ask->target))
		s->number = at->number;
}

/* It may have another number by now: somebody took a snapshot. */
static uint64_t number_of(struct squashing *s)
{
	s->number = 0;
	mount_table_each(s->ask->mount_table, look, s);
	return s->number;
}

static int step(void *arg, const struct snapshot_merge_progress *p)
{
	struct squashing *s = arg;
	const int64_t now = clock_ms();

	if (now - s->told_ms < STEP_MS)
		return 0;
	s->told_ms = now;
	return s->ask->step(s->ask->arg, p) < 0 ? -ECANCELED : 0;
}

static int fill(struct squashing *s)
{
	/* This thread alone, which is of this request. */
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

/* The kernel tells of a close some time after the program went on. */
static int publish(struct squashing *s)
{
	int r = -EAGAIN;

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
		return "not of a mount with share=pages or locks=server, nor of a server without a "
		       "supervisor, nor where the file system of the upper cannot exchange two "
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
	struct squashing s = { .ask = q, .squash = MOUNT_SQUASH_NONE };
	int r;

	*err = '\0';
	mount_table_each(q->mount_table, begin_if_it_is, &s);
	r = !s.is_found ? -ENOENT : s.result ?: fill(&s) ?: publish(&s);
	q->n = s.squash.n;
	q->progress = s.squash.merge.progress;
	if (r == -EALREADY)
		q->n = r = 0;
	else if (r < 0 && s.is_found)
		say(&s, r, err, err_size);
	mount_squash_release(&s.squash);
	return s.is_found && r == -ENOENT ? -ESRCH : r;
}
