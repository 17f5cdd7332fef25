// SPDX-License-Identifier: Apache-2.0
#include "mount_request.h"

#include "answer_gate.h"
#include "snapshot_take.h"
#include "wire_send.h"

#include "veneer/base/log.h"
#include "veneer/jobs/promote_worker.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_MS 200 /* interval of progress messages */

bool mount_request_is_one(enum wire_type type)
{
	return type == WIRE_FLATTEN || type == WIRE_SNAPSHOT || type == WIRE_ROLLBACK ||
	       type == WIRE_SQUASH;
}

void mount_request_read(struct mount_request *q, const struct wire_message *m)
{
	q->type = m->type;
	q->target = (struct mount_table_target){ m->dev_major, m->dev_minor, m->count, m->size };
	if (m->type == WIRE_SNAPSHOT || m->type == WIRE_ROLLBACK)
		snapshot_take_names(m, q->back_to, q->snapshot);
	if (m->type == WIRE_SQUASH)
		q->has_squash_names = snapshot_squash_names(m, &q->squash);
}

/* ---- answers ---- */

static void say_error(int fd, const char *text)
{
	log_debug("told a client: %s", text);
	wire_send_text(fd, WIRE_ERROR, text, strlen(text));
}

static int say_done(int fd)
{
	return wire_send(fd, &(struct wire_message){ .type = WIRE_OK });
}

struct pending_client {
	struct promote_worker_job *job;
	int result; /* -ENOENT: there is no such mount */
};

static void ask_mount(struct mount *m, const struct served_place *at, void *arg)
{
	struct pending_client *a = arg;

	(void)at;
	a->result = m->promote ? promote_worker_ask(m->promote, &a->job) : -EROFS;
}

static int say_progress(int fd, const struct promote_worker_progress *s)
{
	char text[128];

	snprintf(text, sizeof(text), WIRE_PROGRESS_FORMAT, s->files, s->nfiles, s->left, s->bytes,
		 s->cloned, s->nbytes);
	return wire_send_text(fd, WIRE_TEXT, text, strlen(text));
}

static void say_elsewhere(int fd)
{
	static const char text[] = "this server has no such mount, and no mount of such an upper";

	wire_send(fd, &(struct wire_message){ .type = WIRE_ERROR,
					      .count = WIRE_EXIT_ELSEWHERE,
					      .text = text,
					      .text_len = sizeof(text) - 1 });
}

/* The mount does the work; wait for it here, as long as the client listens. */
static void answer_flatten(struct mount_request *q, int fd, struct mount_table *mount_table)
{
	struct pending_client a = { .result = -ENOENT };
	struct promote_worker_progress s;
	int r, said;

	mount_table_at(mount_table, &q->target, ask_mount, &a);
	if (a.result == -ENOENT) {
		say_elsewhere(fd);
		return;
	}
	if (a.result < 0) {
		say_error(fd, a.result == -EBUSY ? "another client is flattening it"
						 : strerror(-a.result));
		return;
	}
	do {
		r = promote_worker_job_wait(a.job, PROGRESS_MS, &s);
		said = say_progress(fd, &s);
	} while (r == 1 && said == 0);
	promote_worker_job_free(a.job);
	if (r < 0)
		say_error(fd, r == -ECANCELED ? "the mount ended meanwhile" : strerror(-r));
	else if (said == 0)
		say_done(fd);
}

static void answer_snapshot(struct mount_request *q, int fd, struct mount_table *mount_table)
{
	char err[PATH_MAX * 2] = "";
	int r;

	answer_gate_enter();
	r = snapshot_take(mount_table, &q->target, q->back_to, q->snapshot, err, sizeof(err));
	if (r == -ENOENT)
		say_elsewhere(fd);
	else if (r < 0)
		say_error(fd, err);
	else if (wire_send_text(fd, WIRE_TEXT, q->snapshot, strlen(q->snapshot)) == 0)
		say_done(fd);
	answer_gate_leave();
	if (r == 0)
		snapshot_squash_oldest(mount_table, &q->target);
}

struct waiter {
	const struct mount_request *request;
	int fd;
};

static int say_squash(void *arg, const struct snapshot_merge_progress *p)
{
	const struct waiter *w = arg;
	char text[64];
	int n = snprintf(text, sizeof(text), WIRE_SQUASH_FORMAT, w->request->squash.n, p->entries,
			 p->bytes);

	return wire_send_text(w->fd, WIRE_TEXT, text, (size_t)n);
}

static void answer_squash(struct mount_request *q, int fd, struct mount_table *mount_table)
{
	struct waiter w = { q, fd };
	char err[PATH_MAX * 2] = "two names of snapshots are needed";
	int r = -EINVAL;

	q->squash.is_in_gate = false;
	q->squash.mount_table = mount_table;
	q->squash.target = &q->target;
	q->squash.step = say_squash;
	q->squash.arg = &w;
	if (q->has_squash_names)
		r = snapshot_squash(&q->squash, err, sizeof(err));
	if (r == -ENOENT)
		say_elsewhere(fd);
	else if (r < 0)
		say_error(fd, err);
	else if (say_squash(&w, &q->squash.progress) == 0)
		say_done(fd);
	snapshot_squash_leave(&q->squash);
}

void mount_request_answer(struct mount_request *q, int fd, struct mount_table *mount_table)
{
	if (q->type == WIRE_FLATTEN)
		answer_flatten(q, fd, mount_table);
	else if (q->type == WIRE_SQUASH)
		answer_squash(q, fd, mount_table);
	else
		answer_snapshot(q, fd, mount_table);
}
