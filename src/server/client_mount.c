// SPDX-License-Identifier: Apache-2.0
/* The server opens everything that can fail before the kernel knows of the mount. A mount that
 * fails after that is taken down again. */
#include "veneer/server/client.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/fuse/attach.h"
#include "veneer/sys/sock.h"

#include "client-internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Requests that a server hung up on: a server that dies so often probably dies of this request or
 * of overload. */
#define LOST_MAX      8
#define LOST_PAUSE_MS 10 /* before the third attempt; doubles with each further one */
/* Superblocks that ended before this mount had joined: other mounts come and go meanwhile. */
#define GONE_MAX     64
#define ARGS_PIECE   (WIRE_PAYLOAD_MAX / 2)
#define LAST_WORD_MS 1000 /* for the message of a server that hung up: it has come by then */

enum loss { LOST_NOTHING, LOST_SERVER, LOST_SHARED };

/* The request for a mount to one server. */
struct request {
	const struct client_mount *m;
	int fd; /* the connection */
	enum loss loss;
	char *err;
	size_t err_size;
};

static int send_dirs(int fd, enum wire_role role, const int *dirs, size_t n)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < n; at += WIRE_FDS_MAX) {
		size_t now = n - at < WIRE_FDS_MAX ? n - at : WIRE_FDS_MAX;

		r = client_say(fd,
			       &(struct wire_message){
				       .type = WIRE_DIRS, .role = role, .n_fds = (unsigned)now },
			       dirs + at, now);
	}
	return r;
}

static int send_args(int fd, const struct client_mount *m)
{
	_cleanup_(buf_release) struct buf args = { 0 };
	struct wire_message last = {
		.type = WIRE_MOUNT,
		.count = (uint32_t)m->argc,
		.flags = (m->is_root ? WIRE_MOUNT_IS_ROOT : 0) |
			 (m->opts->has_no_device_whiteouts ? WIRE_MOUNT_NO_DEVICE_WHITEOUTS : 0) |
			 (m->opts->share == SHARE_PAGES && attach_may_bind() ? WIRE_MOUNT_CAN_SHARE
									     : 0),
	};
	int r = wire_put_arg(&args, m->cwd);

	for (int i = 0; r == 0 && i < m->argc; i++)
		r = wire_put_arg(&args, m->argv[i]);
	last.size = args.len;
	for (size_t at = 0; r == 0 && at < args.len; at += ARGS_PIECE)
		r = client_say(fd,
			       &(struct wire_message){ .type = WIRE_ARGS,
						       .text = (char *)args.data + at,
						       .text_len = args.len - at < ARGS_PIECE
									   ? args.len - at
									   : ARGS_PIECE },
			       NULL, 0);
	return r < 0 ? r : client_say(fd, &last, NULL, 0);
}

/* Open the upper anew for each request, since a lock belongs to an open file. An earlier request
 * may still hold the lock until this server, or the next one, has closed its mount; this request
 * then waits for it. */
static int send_upper(int fd, int upper)
{
	_cleanup_(closep) int own = openat(upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return own < 0 ? -errno : send_dirs(fd, WIRE_UPPER, &own, 1);
}

static int send_request(int fd, const struct client_mount *m)
{
	int r = send_dirs(fd, WIRE_LOWER, m->dirs->lower, m->dirs->n_lower);

	if (r == 0)
		r = send_dirs(fd, WIRE_CLONE, m->dirs->clones, m->dirs->n_clones);
	if (r == 0 && m->dirs->upper >= 0)
		r = send_upper(fd, m->dirs->upper);
	if (r == 0 && m->dirs->work >= 0)
		r = send_dirs(fd, WIRE_WORK, &m->dirs->work, 1);
	if (r == 0 && m->dirs->state >= 0)
		r = send_dirs(fd, WIRE_STATE, &m->dirs->state, 1);
	return r < 0 ? r : send_args(fd, m);
}

/* Give the server the mount's descriptor and wait for its answer without a limit, as a mount
 * without a server would. A server that hung up may have sent the reason before. */
static int hand_over(struct request *q, const struct wire_message *fuse, int fuse_fd,
		     enum wire_type answer, struct client_packet *p)
{
	int r = client_say(q->fd, fuse, &fuse_fd, 1);

	if (r == 0 || r == -EPIPE)
		return client_hear(q->fd, r == 0 ? -1 : LAST_WORD_MS, answer, p, q->err,
				   q->err_size);
	snprintf(q->err, q->err_size, "cannot hand the mount over: %s", strerror(-r));
	return r;
}

/* The server is ready: mount, and let it answer. If it dies meanwhile, take the mount down, even if
 * the next server has it; the request may be repeated. */
static int mount_and_hand_over(struct request *q, bool is_readonly)
{
	struct wire_message fuse = { .type = WIRE_FUSE, .n_fds = 1 };
	struct client_packet p;
	struct attach *a;
	int fuse_fd, r = attach_new(q->m->opts, is_readonly, &a, q->err, q->err_size);

	if (r < 0)
		return r;
	attach_device(a, &fuse.dev_major, &fuse.dev_minor);
	fuse_fd = attach_fd(a);
	r = hand_over(q, &fuse, fuse_fd, WIRE_OK, &p);
	if (r == 0)
		attach_tune(a);
	else
		attach_detach(a);
	attach_free(a);
	q->loss = r == -EPIPE ? LOST_SERVER : LOST_NOTHING;
	return r == -EPIPE ? CLIENT_NO_SERVER : r;
}

/* Make the shared file system and hand it over, or join it by its descriptor; it is not mounted
 * yet. *ret_number: of the mount's root in it. */
static int enter_shared(struct request *q, const struct wire_message *told, int fuse_fd,
			struct attach **ret, uint32_t *ret_number)
{
	struct wire_message fuse = { .type = WIRE_FUSE, .n_fds = 1 };
	struct client_packet p;
	int own_fd, r;

	*ret_number = told->count;
	if (told->count)
		return attach_join_sb(q->m->opts, fuse_fd, ret, q->err, q->err_size);
	r = attach_new_detached(q->m->opts, ret, q->err, q->err_size);
	if (r < 0)
		return r;
	attach_device(*ret, &fuse.dev_major, &fuse.dev_minor);
	own_fd = attach_fd(*ret);
	r = hand_over(q, &fuse, own_fd, WIRE_SHARED, &p);
	if (r == 0) {
		attach_tune(*ret);
		*ret_number = p.m.count;
		return 0;
	}
	attach_free(steal_ptr(ret));
	return r;
}

/* Bind the root of the mount in the shared superblock; ask again if the superblock has gone in the
 * meantime. Takes fuse_fd over and closes it before the lookup: if the servers are dead, a lookup
 * would hang for ever as long as any process has that descriptor. */
static int bind_shared(struct request *q, const struct wire_message *told, int fuse_fd)
{
	struct attach *a = NULL;
	uint32_t number;
	char name[16];
	int r = enter_shared(q, told, fuse_fd, &a, &number);

	closep(&fuse_fd);
	if (r == 0) {
		attach_close_fd(a);
		snprintf(name, sizeof(name), "%u", number);
		r = attach_mount_subdir(a, name, q->err, q->err_size);
		if (r == 0) {
			r = client_say(q->fd, &(struct wire_message){ .type = WIRE_BOUND }, NULL,
				       0);
			if (r < 0)
				snprintf(q->err, q->err_size, "the server is gone");
		}
		if (r < 0)
			attach_detach(a);
		attach_free(a);
	}
	/* A kernel before 5.15 cannot mount a file system again by its descriptor. */
	if (r == -EINVAL && told->count && !a)
		return CLIENT_NO_SERVER;
	/* The next server may have treated the member as one that will not be bound. */
	if (r == -ENOTCONN || r == -ECONNABORTED || r == -ENODEV || r == -ENOENT || r == -ESTALE)
		q->loss = LOST_SHARED;
	else
		q->loss = r == -EPIPE ? LOST_SERVER : LOST_NOTHING;
	return q->loss == LOST_NOTHING ? r : CLIENT_NO_SERVER;
}

/* Wait for READY or SHARED, and print the texts about waiting that come before. SHARED may come
 * with a descriptor; p->fd is the caller's, also on failure. */
static int hear_ready(struct request *q, int timeout_ms, struct client_packet *p)
{
	int r;

	while ((r = client_hear_with(q->fd, timeout_ms, CLIENT_ANY, p, q->err, q->err_size)) == 0 &&
	       p->m.type == WIRE_TEXT) {
		closep(&p->fd);
		log_warn("%.*s", (int)p->m.text_len, p->m.text);
	}
	if (r == 0 && p->m.type != WIRE_READY &&
	    (p->m.type != WIRE_SHARED || !p->m.count == (p->fd >= 0))) {
		snprintf(q->err, q->err_size, "the server's answer cannot be understood");
		r = -EBADMSG;
	}
	return r;
}

/* -EPIPE: the server has hung up before it did anything. */
static int attempt(const struct rundir *at, struct request *q)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(closep) int fuse_fd = -1;
	struct client_packet p;
	int r = client_connect(at, true, &fd, q->err, q->err_size);

	q->loss = LOST_NOTHING;
	if (r < 0)
		return CLIENT_NO_SERVER;
	q->fd = fd;
	r = send_request(fd, q->m);
	if (r == 0 || r == -EPIPE) {
		r = hear_ready(q, r == 0 ? -1 : LAST_WORD_MS, &p);
		fuse_fd = p.fd;
	} else {
		snprintf(q->err, q->err_size, "cannot send the request: %s", strerror(-r));
	}
	if (r == -EREMOTEIO)
		return r;
	q->loss = r == -EPIPE ? LOST_SERVER : LOST_NOTHING;
	if (r == 0 && p.m.type == WIRE_SHARED)
		return bind_shared(q, &p.m, steal_fd(&fuse_fd));
	return r < 0 ? CLIENT_NO_SERVER : mount_and_hand_over(q, p.m.flags & WIRE_READY_READONLY);
}

/* Pause: the next server is busy resuming the mounts of the dead one. */
static void rest(unsigned n_lost)
{
	if (n_lost > 1)
		usleep((LOST_PAUSE_MS << (n_lost - 2)) * 1000);
}

int client_mount(const struct rundir *at, const struct client_mount *m, char *err, size_t err_size)
{
	struct request q = { .m = m, .err = err, .err_size = err_size };
	unsigned n_lost = 0, n_gone = 0;
	int r;

	do {
		if (q.loss == LOST_SERVER)
			rest(n_lost);
		r = attempt(at, &q);
		n_lost += q.loss == LOST_SERVER;
		n_gone += q.loss == LOST_SHARED;
	} while (q.loss != LOST_NOTHING && n_lost < LOST_MAX && n_gone < GONE_MAX);
	return r;
}
