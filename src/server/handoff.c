// SPDX-License-Identifier: Apache-2.0
/* The new supervisor answers when everything is in its place; only then does the old one give up,
 * and confirms it. Without that answer the old one goes on as before, and without the confirmation
 * the new one ends. */
#include "handoff.h"

#include "handoff_message.h"
#include "recovery.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/hash.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/recover/fd_renumber.h"
#include "veneer/recover/intent_log.h"
#include "veneer/server/service_notify.h"
#include "veneer/sys/file.h"
#include "veneer/sys/sock.h"
#include "wire.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LIMIT_MS 10000 /* total time of the old side, while the mounts wait */
#define PIECE	 100u /* descriptors in one message */

static int left_ms(int64_t end)
{
	int64_t left = end - clock_ms();

	return left > INT_MAX ? INT_MAX : left > 0 ? (int)left : 0;
}

static int say(int fd, const struct wire_message *m, const int *fds, size_t n, int64_t end)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = wire_encode(m, &b);

	return r < 0 ? r : sock_send(fd, b.data, b.len, fds, n, left_ms(end));
}

struct collecting {
	struct handoff_message *handoff_message;
	int r;
};

/* A slot may name a descriptor that is already closed. */
static void collect_fd(int fd, void *arg)
{
	struct collecting *c = arg;

	if (c->r == 0 && fcntl(fd, F_GETFD) >= 0)
		c->r = handoff_message_add_fd(c->handoff_message, fd);
}

static void collect_mount(int fd, uint32_t place, void *arg)
{
	struct collecting *c = arg;

	(void)place;
	if (c->r == 0)
		c->r = handoff_message_add_mount(c->handoff_message, fd);
}

static int collect(const struct handoff *e, struct handoff_message *b)
{
	struct collecting c = { .handoff_message = b };

	*b = (struct handoff_message){ .owns_socket = e->owns_socket,
				       .listen_fd = e->listen_fd,
				       .notify_fd = e->notify_fd,
				       .hash_secret = hash_secret(),
				       .last_key = supervisor_state_last_key(e->supervisor_state) };
	collect_fd(e->listen_fd, &c);
	collect_fd(e->notify_fd, &c);
	supervisor_state_each(e->supervisor_state, collect_mount, &c);
	recovery_each_fd(e->supervisor_state, collect_fd, &c);
	return c.r
		       ?: buf_put(&b->journal, supervisor_state_extra(e->supervisor_state),
				  supervisor_state_extra_bytes(e->supervisor_state));
}

static int send_all(int fd, const struct handoff_message *b, int64_t end)
{
	_cleanup_(buf_release) struct buf bytes = { 0 };
	_cleanup_(closep) int memfd = memfd_create("veneer-bequest", MFD_CLOEXEC);
	int r = memfd < 0 ? -errno : handoff_message_encode(b, &bytes);

	if (r == 0)
		r = file_pwrite(memfd, bytes.data, bytes.len, 0);
	if (r >= 0)
		r = say(fd, &(struct wire_message){ .type = WIRE_HANDOFF_MESSAGE, .count = 1 },
			&memfd, 1, end);
	for (size_t i = 0, n; r == 0 && i < b->n_fds; i += n) {
		n = b->n_fds - i < PIECE ? b->n_fds - i : PIECE;
		r = say(fd,
			&(struct wire_message){ .type = WIRE_HANDOFF_MESSAGE,
						.count = (uint32_t)n },
			b->fds + i, n, end);
	}
	return r;
}

struct packet {
	struct wire_message m; /* points into bytes */
	uint8_t bytes[WIRE_MESSAGE_MAX];
	int fds[SOCK_FDS_MAX];
	size_t n_fds;
};

/* -EPIPE: the end; -EBADMSG: another message, whose descriptors are closed. */
static int hear(int fd, enum wire_type type, struct packet *p, int64_t end)
{
	int r = sock_wait(fd, left_ms(end));

	p->n_fds = 0;
	if (r == 0)
		r = sock_recv(fd, p->bytes, sizeof(p->bytes), p->fds, &p->n_fds);
	if (r < 0)
		return r;
	r = r ? wire_decode(p->bytes, (size_t)r, &p->m) : -EPIPE;
	if (r == 0 && p->m.type == type &&
	    p->n_fds == (type == WIRE_HANDOFF_MESSAGE ? p->m.count : 0))
		return 0;
	sock_close_fds(p->fds, p->n_fds);
	p->n_fds = 0;
	return r < 0 ? r : p->m.type == WIRE_ERROR ? -EREMOTEIO : -EBADMSG;
}

/* Refuse if a signal is pending: it came while there was no server, and is for the next one. */
static bool has_signal(void)
{
	static const int told[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
	sigset_t set;

	sigpending(&set);
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++)
		if (sigismember(&set, told[i]))
			return true;
	return false;
}

/* The connection stays open to the last: its end tells the peer that the locks of all other files
 * are free. */
static void close_all_but(int fd)
{
	if (fd > 3)
		close_range(3, (unsigned)fd - 1, 0);
	close_range((unsigned)fd + 1, ~0u, 0);
}

static void tell_manager(int notify_fd, uint64_t pid)
{
	char text[48];

	snprintf(text, sizeof(text), "MAINPID=%llu", (unsigned long long)pid);
	service_notify_send(notify_fd, text);
}

static int offer(int fd, const struct handoff *e, const struct handoff_message *b)
{
	const int64_t end = clock_ms() + LIMIT_MS;
	_cleanup_(freep) struct packet *answer = malloc(sizeof(*answer));
	int r = answer ? send_all(fd, b, end) : -ENOMEM;

	if (r == 0)
		r = hear(fd, WIRE_PONG, answer, end);
	if (r == 0 && has_signal())
		r = -EINTR;
	if (r == 0)
		r = say(fd, &(struct wire_message){ .type = WIRE_OK }, NULL, 0, end);
	if (r == 0)
		tell_manager(e->notify_fd, answer->m.size);
	return r;
}

int handoff_offer(int fd, const struct handoff *e)
{
	_cleanup_(handoff_message_release) struct handoff_message b = { .listen_fd = -1 };
	int r = collect(e, &b);

	if (r == 0)
		r = offer(fd, e, &b);
	if (r < 0) {
		log_warn("the mounts could not be handed to another server: %s", strerror(-r));
		return r;
	}
	log_info("handed over to another server: %s", human_units_of(b.n_mounts, "mount").text);
	log_release();
	close_all_but(fd);
	close(fd);
	return 0;
}

static int read_handoff_message(int fd, struct handoff_message *ret)
{
	_cleanup_(freep) uint8_t *bytes = NULL;
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t n;

	if (size < 0)
		return -errno;
	bytes = malloc((size_t)size + 1);
	if (!bytes)
		return -ENOMEM;
	n = file_pread(fd, bytes, (size_t)size, 0);
	return n < 0 ? (int)n : handoff_message_decode(bytes, (size_t)n, ret);
}

/* Receive the handoff message, which comes first. */
static int take_handoff_message(int fd, struct packet *p, int64_t end, struct handoff_message *ret)
{
	int r = hear(fd, WIRE_HANDOFF_MESSAGE, p, end);

	if (r < 0)
		return r;
	r = p->n_fds == 1 ? read_handoff_message(p->fds[0], ret) : -EBADMSG;
	sock_close_fds(p->fds, p->n_fds);
	return r;
}

static int take_fds(int fd, struct packet *p, int64_t end, int *got, size_t n)
{
	size_t have = 0;
	int r = 0;

	while (r == 0 && have < n) {
		r = hear(fd, WIRE_HANDOFF_MESSAGE, p, end);
		if (r == 0 && (p->n_fds == 0 || p->n_fds > n - have)) {
			sock_close_fds(p->fds, p->n_fds);
			r = -EBADMSG;
		}
		for (size_t i = 0; r == 0 && i < p->n_fds; i++)
			got[have++] = p->fds[i];
	}
	if (r < 0)
		sock_close_fds(got, have);
	return r;
}

static int make_supervisor_state(const struct handoff_message *b, struct supervisor_state **ret)
{
	struct supervisor_state *l;
	int r = supervisor_state_new(intent_log_area_bytes(), &l);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < b->n_mounts; i++) {
		uint32_t place;

		r = supervisor_state_put(l, b->mounts[i], &place);
	}
	/* An area of another size has another layout, and is ignored. */
	if (b->journal.len == supervisor_state_extra_bytes(l))
		memcpy(supervisor_state_extra(l), b->journal.data, b->journal.len);
	supervisor_state_set_last_key(l, b->last_key);
	supervisor_state_note_death(l);
	hash_use_secret(b->hash_secret);
	*ret = l;
	return r;
}

/* The end of the old supervisor releases its locks. If it does not end, opening the mounts reports
 * that. */
static void await_end(int fd, struct packet *p)
{
	if (hear(fd, WIRE_OK, p, clock_ms() + LIMIT_MS) == -ETIMEDOUT)
		log_warn("the server before does not end");
}

static int settle(int fd, struct packet *p, int64_t end, const struct handoff_message *b,
		  struct handoff *ret)
{
	const struct wire_message done = { .type = WIRE_PONG,
					   .size = (uint64_t)getpid(),
					   .count = (uint32_t)b->n_mounts };
	int r;

	*ret = (struct handoff){ .listen_fd = b->listen_fd,
				 .notify_fd = b->notify_fd,
				 .owns_socket = b->owns_socket };
	r = sock_is_listening(b->listen_fd) ? make_supervisor_state(b, &ret->supervisor_state)
					    : -ENOTSOCK;
	if (r == 0)
		r = say(fd, &done, NULL, 0, end);
	/* Wait without a limit for the confirmation or the end of the old one. Giving up earlier
	 * could leave the mounts without a server, if the confirmation has just been sent. */
	if (r == 0)
		r = hear(fd, WIRE_OK, p, INT64_MAX);
	if (r == 0)
		await_end(fd, p);
	return r;
}

static int take(int *fd, int *const *own, size_t n_own, struct packet *p, struct handoff *ret)
{
	const char *versions = handoff_message_versions();
	const struct wire_message ask = { .type = WIRE_UPGRADE,
					  .text = versions,
					  .text_len = strlen(versions) };
	/* Longer than the old one waits, so that the old one gives up first. */
	const int64_t end = clock_ms() + 3 * LIMIT_MS;
	_cleanup_(handoff_message_release) struct handoff_message b = { .listen_fd = -1 };
	_cleanup_(freep) int *got = NULL;
	int r = say(*fd, &ask, NULL, 0, end);

	if (r == 0)
		r = take_handoff_message(*fd, p, end, &b);
	if (r == 0)
		r = fd_renumber_make_room(b.fds, b.n_fds, own, n_own);
	if (r == 0)
		r = fd_renumber_make_room(b.fds, b.n_fds, &fd, 1);
	if (r == 0 && !(got = calloc(b.n_fds, sizeof(*got))))
		r = -ENOMEM;
	if (r == 0)
		r = take_fds(*fd, p, end, got, b.n_fds);
	if (r == 0)
		r = fd_renumber_place(got, b.fds, b.n_fds);
	return r ?: settle(*fd, p, end, &b, ret);
}

int handoff_take(int *fd, int *const *own, size_t n_own, struct handoff *ret, char *err,
		 size_t err_size)
{
	_cleanup_(freep) struct packet *p = calloc(1, sizeof(*p));
	int r = p ? take(fd, own, n_own, p, ret) : -ENOMEM;

	if (r == -EREMOTEIO)
		snprintf(err, err_size, "%.*s", (int)p->m.text_len, p->m.text);
	else if (r == -EPIPE)
		snprintf(err, err_size,
			 "the server before hands nothing over, as when it waits for a layer that "
			 "does not answer");
	else if (r < 0)
		snprintf(err, err_size, "cannot take the mounts over: %s", strerror(-r));
	closep(fd);
	return r;
}
