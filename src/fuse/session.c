// SPDX-License-Identifier: Apache-2.0
#include "veneer/fuse/session.h"

#include "op.h"
#include "responder.h"
#include "unanswered.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/fuse/rollback_notify.h"
#include "veneer/union/locks.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Interrupts that libfuse may have at the end; it leaks any beyond. */
#define INTERRUPTS_KEPT 64

/* Composes the connection to the kernel, the requests that a dead server read, and the responder.
 * The last two refer to the first, and the responder to the second. */
struct session {
	struct mount *m;
	struct fuse_session *se;
	struct buf init; /* the kernel's first request */
	bool is_inner; /* the outer session reads and sends for it */
	struct unanswered unanswered;
	struct responder responder;
};

static struct fuse_session *new_fuse_session(struct mount *m)
{
	struct fuse_lowlevel_ops ops = { .init = negotiate_init };
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *se = NULL;

	op_open_install(&ops);
	op_meta_install(&ops);
	op_name_install(&ops);
	op_data_install(&ops);
	op_dir_install(&ops);
	op_xattr_install(&ops);
	op_ioctl_install(&ops);
	if (m->tree.locks)
		op_lock_install(&ops);
	m->tree.on_touched = op_touched;
	/* attach_new has given the kernel the options. */
	if (fuse_opt_add_arg(&args, "veneer") == 0)
		se = fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	return se;
}

/* Hand libfuse a connection that is mounted already, by a name that it knows for that. */
static int take_over_fd(struct session *s, int fuse_fd)
{
	char name[32];
	int fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return -errno;
	/* Duplicate again, by a call that the thread sanitizer knows: it then orders a reply before
	 * the FORGET that follows it. */
	dup3(fuse_fd, fd, O_CLOEXEC);
	snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	/* Readers block. */
	if (fcntl(fd, F_SETFL, O_RDWR) == 0 && fuse_session_mount(s->se, name) == 0)
		return 0;
	close(fd);
	return -EIO;
}

/* Answer INIT, before which the kernel sends no other request. It fits the smallest buffer that the
 * kernel reads into. */
static int answer_init(struct session *s)
{
	_Alignas(struct fuse_in_header) char request[FUSE_MIN_READ_BUFFER];
	struct fuse_buf buf = { .mem = request };
	ssize_t n;
	int r;

	do {
		n = read(session_fd(s), request, sizeof(request));
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	r = n > 0 ? 1 : n < 0 ? -errno : -ENODEV;
	if (r > 0 && buf_put(&s->init, request, (size_t)n) < 0)
		r = -ENOMEM;
	if (r > 0) {
		buf.size = (size_t)n;
		session_answer(s, &buf);
		/* Where memory is short libfuse answers with an error itself, and every request
		 * would be refused from then on. */
		r = s->m->has_begun ? 0 : -ENOMEM;
	}
	return r;
}

static int session_new(struct mount *m, struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s || !(s->se = new_fuse_session(m))) {
		free(s);
		return -ENOMEM;
	}
	s->m = m;
	unanswered_init(&s->unanswered, m, s->se);
	s->responder = (struct responder){ .m = m, .se = s->se, .unanswered = &s->unanswered };
	*ret = s;
	return 0;
}

int session_start(struct mount *m, int fuse_fd, struct session **ret, char *err, size_t err_size)
{
	struct session *s;
	int r = session_new(m, &s);

	if (r < 0) {
		snprintf(err, err_size, "out of memory");
		return r;
	}
	r = take_over_fd(s, fuse_fd);
	if (r == 0)
		r = answer_init(s);
	if (r < 0) {
		if (r == -ENOMEM)
			snprintf(err, err_size, "cannot answer the kernel at %s: %s",
				 m->opts.mountpoint, strerror(-r));
		else
			snprintf(err, err_size, "the kernel closed the mount at %s",
				 m->opts.mountpoint);
		session_free(s);
		return -EIO;
	}
	unanswered_start(&s->unanswered);
	op_open_settle(m, s->se);
	*ret = s;
	return 0;
}

/* Let libfuse learn the agreement with the kernel from a request that was answered already. */
static int replay_init(struct session *s, const struct buf *init)
{
	struct fuse_buf buf = { .size = init->len, .mem = malloc(init->len) };

	if (!buf.mem)
		return -ENOMEM;
	memcpy(buf.mem, init->data, buf.size);
	session_answer(s, &buf);
	free(buf.mem);
	/* As in answer_init. */
	return s->m->has_begun ? 0 : -ENOMEM;
}

void session_divert(struct session *s, bool (*divert)(void *arg, const struct fuse_buf *buf),
		    void *arg)
{
	s->responder.divert_arg = arg;
	s->responder.divert = divert;
}

int session_start_inner(struct session *outer, struct mount *m, const struct fuse_custom_io *io,
			struct session **ret)
{
	int r, fd = fcntl(session_fd(outer), F_DUPFD_CLOEXEC, 3);
	struct session *s;

	if (fd < 0)
		return -errno;
	r = session_new(m, &s);
	if (r < 0) {
		closep(&fd);
		return r;
	}
	s->is_inner = true;
	r = fuse_session_custom_io(s->se, io, sizeof(*io), fd);
	if (r < 0)
		closep(&fd);
	/* The answer goes nowhere. */
	if (r == 0)
		r = replay_init(s, &outer->init);
	if (r == 0 && !m->has_begun)
		r = -ENOMEM;
	if (r < 0) {
		session_free(s);
		return r;
	}
	op_open_settle(m, s->se);
	*ret = s;
	return 0;
}

void session_again_inner(struct session *s)
{
	s->m->tree.on_touched = op_touched;
	s->m->has_begun = true;
	op_open_settle(s->m, s->se);
}

int session_resume(struct mount *m, const struct session_saved *saved, struct session **ret,
		   char *err, size_t err_size)
{
	struct session *s;
	int r = session_new(m, &s);

	if (r < 0) {
		snprintf(err, err_size, "out of memory");
		return r;
	}
	r = take_over_fd(s, saved->fuse_fd);
	if (r == 0)
		r = buf_put(&s->init, saved->init->data, saved->init->len);
	/* The kernel, which has its answer, refuses this one, and libfuse takes that for a request
	 * that was interrupted (shared/measured.md). */
	if (r == 0)
		r = replay_init(s, saved->init);
	if (r == 0)
		r = op_open_resume(m, s->se, saved->io);
	if (r < 0) {
		snprintf(err, err_size, "cannot resume the mount at %s: %s", m->opts.mountpoint,
			 strerror(-r));
		session_free(s);
		return r;
	}
	unanswered_resume(&s->unanswered, saved->fuse_fd);
	*ret = s;
	return 0;
}

bool session_has_resend(const struct session *s)
{
	return s->unanswered.has_resend;
}

void session_invalidate(struct session *s, int fuse_fd)
{
	unanswered_invalidate(&s->unanswered, fuse_fd);
}

const void *session_init(const struct session *s, size_t *ret_len)
{
	*ret_len = s->init.len;
	return s->init.data;
}

/* libfuse keeps interrupts of requests that had been answered. It frees one with each request that
 * comes, and none with the session. */
static void drop_interrupts(struct session *s)
{
	struct fuse_in_header in = { .len = sizeof(in), .opcode = FUSE_DESTROY };
	const struct fuse_buf buf = { .size = sizeof(in), .mem = &in };

	fuse_session_exit(s->se); /* libfuse does not complain of failed replies */
	for (int i = 0; i < INTERRUPTS_KEPT; i++)
		fuse_session_process_buf(s->se, &buf);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	/* Waiters hold requests of libfuse, which frees them with the session. */
	if (s->m->tree.locks)
		locks_end(s->m->tree.locks, -ENODEV);
	if (s->m->tree.locks && !s->is_inner)
		drop_interrupts(s);
	rollback_notify_stop(s->m);
	unanswered_release(&s->unanswered);
	buf_release(&s->init);
	fuse_session_destroy(s->se);
	free(s);
}

void session_leave(struct session *s)
{
	if (s && s->m->tree.locks)
		locks_end(s->m->tree.locks, -ERESTART);
	session_free(s);
}

struct mount *session_mount(struct session *s)
{
	return s->m;
}

int session_fd(const struct session *s)
{
	return fuse_session_fd(s->se);
}

/* A buffer for the largest request, with every page present. If the server is killed while the
 * kernel copies a request to an absent page, the request ends with EIO and is not resent. A page
 * that is shared with a child (kernel_invalidate_send) is as bad until it is written to, hence
 * MADV_DONTFORK. The buffer has a mapping of its own: memory of malloc keeps the flag when it is
 * freed, and the child would crash on the next allocation there. Requests have at most max_write
 * and a page. */
_Static_assert(SESSION_BUFFER_BYTES >= SESSION_MAX_WRITE + 4096, "room for the largest request");

static void map_buffer(struct fuse_buf *buf, bool is_present)
{
	void *p = mmap(NULL, SESSION_BUFFER_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	if (is_present) {
		madvise(p, SESSION_BUFFER_BYTES, MADV_DONTFORK);
		memset(p, 1, SESSION_BUFFER_BYTES);
	}
	buf->mem = p;
	buf->mem_size = SESSION_BUFFER_BYTES;
}

void session_free_buffer(struct fuse_buf *buf)
{
	if (buf->mem)
		munmap(buf->mem, SESSION_BUFFER_BYTES);
	buf->mem = NULL;
}

int session_receive(struct session *s, struct fuse_buf *buf)
{
	for (;;) {
		if (!buf->mem)
			map_buffer(buf, s->m->key);
		if (!buf->mem) {
			usleep(1000); /* as below */
			continue;
		}

		const bool may_be_resent = unanswered_read_begin(&s->unanswered);
		int n = fuse_session_receive_buf(s->se, buf);

		if (may_be_resent)
			unanswered_read_end(&s->unanswered, n > 0 ? buf : NULL);
		if (n > 0)
			return 1;
		if (n == 0)
			return -ENODEV;
		if (n == -ENOMEM)
			usleep(1000); /* the request waits; giving up would end the mount */
		else if (n != -EAGAIN)
			return n;
	}
}

void session_answer(struct session *s, const struct fuse_buf *buf)
{
	responder_answer(&s->responder, buf);
}
