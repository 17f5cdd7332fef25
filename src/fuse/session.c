// SPDX-License-Identifier: Apache-2.0
#include "veneer/fuse/session.h"

#include "kernel_invalidate.h"
#include "op.h"
#include "request_text.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/recover/activity.h"
#include "veneer/union/locks.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

struct session {
	struct mount *m;
	struct fuse_session *se;
	struct buf init; /* the kernel's first request */
	bool is_sent_again; /* the kernel sends what a dead server had read to the next one;
			     * else, */
	bool ends_requests; /* it ends it */
	int tell_fd; /* then: what keeps the mount alive; -1 */
	struct kernel_invalidate
		*invalidate; /* what the kernel believes wrongly since; NULL: nothing */
	/* While requests may come again: where the kernel is told of those that do not, and how
	 * many threads are taking one that may. */
	_Atomic bool awaits_others;
	int kept_fd;
	_Atomic unsigned n_taking;
	bool (*divert)(void *arg, const struct fuse_buf *buf); /* NULL: none */
	void *divert_arg;
	bool is_inside; /* another one reads and sends for it */
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
	/* Options are a matter of mounting (attach.c). */
	if (fuse_opt_add_arg(&args, "veneer") == 0)
		se = fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	return se;
}

/* libfuse takes over what is mounted already by such a name. */
static int take_over_fd(struct session *s, int fuse_fd)
{
	char name[32];
	int fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return -errno;
	/* The same once more, by a call that the thread sanitizer knows: a reply comes before the
	 * FORGET that follows it. */
	dup3(fuse_fd, fd, O_CLOEXEC);
	snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	/* Readers block. */
	if (fcntl(fd, F_SETFL, O_RDWR) == 0 && fuse_session_mount(s->se, name) == 0)
		return 0;
	close(fd);
	return -EIO;
}

/* The kernel's first request; once it is answered, so is every other. It takes no more than the
 * smallest buffer that the kernel reads into. */
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

/* Newer than the headers of the systems we build on. */
#define KERNEL_NOTIFY_RESEND 7
#define KERNEL_STATX	     52
#define INTERRUPTS_KEPT                                                           \
	64 /* at most, of those that libfuse has at the end; more are lost memory \
	    */
#define DESCRIPTION_BYTES 1024u /* of a request, for -d */

/* Have the kernel resend what was read and not answered, with a mark (op.h, is_resent). False: the
 * kernel, older than 6.9, cannot do so. Right after INIT there is nothing to come again, and that
 * is the question. */
static bool ask_again(struct session *s)
{
	const struct fuse_out_header out = { .len = sizeof(out), .error = KERNEL_NOTIFY_RESEND };

	return !getenv("VENEER_NO_RESEND") &&
	       write(session_fd(s), &out, sizeof(out)) == (ssize_t)sizeof(out);
}

/* Requests belong to the open file that they were read by. Those that are read by another one than
 * what keeps the mount alive are ended by the kernel when that is closed, and nothing else is: so
 * that nobody waits for ever for a server that is dead. */
static int read_by_clone(struct session *s)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	uint32_t of = (uint32_t)session_fd(s);

	s->tell_fd = fcntl(session_fd(s), F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || s->tell_fd < 0 || ioctl(fd, FUSE_DEV_IOC_CLONE, &of) < 0 ||
	    dup3(fd, session_fd(s), O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static void end_by_clone(struct session *s)
{
	int r = read_by_clone(s);

	s->ends_requests = r == 0;
	if (r < 0)
		log_warn("%s: cannot end requests of a dead server: if the server crashes, "
			 "blocked programs hang: %s",
			 s->m->opts.mountpoint, strerror(-r));
}

static int session_new(struct mount *m, struct session **ret, char *err, size_t err_size)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s || !(s->se = new_fuse_session(m))) {
		snprintf(err, err_size, "out of memory");
		free(s);
		return -ENOMEM;
	}
	s->m = m;
	s->tell_fd = -1;
	*ret = s;
	return 0;
}

int session_start(struct mount *m, int fuse_fd, struct session **ret, char *err, size_t err_size)
{
	struct session *s;
	int r = session_new(m, &s, err, err_size);

	if (r < 0)
		return r;
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
	s->is_sent_again = m->key && ask_again(s);
	if (m->key && !s->is_sent_again && !m->is_sb_member)
		end_by_clone(s);
	op_open_settle(m, s->se);
	*ret = s;
	return 0;
}

/* libfuse learns what was agreed on from the same request; the kernel, which knows that it has its
 * answer, refuses this one, and libfuse takes that for a request that was interrupted
 * (shared/measured.md). */
static int repeat_init(struct session *s, const void *init, size_t len)
{
	struct fuse_buf buf = { .size = len };
	int r = buf_put(&s->init, init, len);

	buf.mem = r < 0 ? NULL : malloc(len);
	if (!buf.mem)
		return -ENOMEM;
	memcpy(buf.mem, init, len);
	session_answer(s, &buf);
	free(buf.mem);
	return 0;
}

void session_divert(struct session *s, bool (*divert)(void *arg, const struct fuse_buf *buf),
		    void *arg)
{
	s->divert_arg = arg;
	s->divert = divert;
}

/* Let this session hear the INIT of the outer one; its answer goes nowhere. */
static int hear_init(struct session *s, struct session *around)
{
	struct fuse_buf buf = { .size = around->init.len, .mem = malloc(around->init.len) };

	if (!buf.mem)
		return -ENOMEM;
	memcpy(buf.mem, around->init.data, buf.size);
	session_answer(s, &buf);
	free(buf.mem);
	return s->m->has_begun ? 0 : -ENOMEM;
}

int session_inside(struct session *around, struct mount *m, const struct fuse_custom_io *io,
		   struct session **ret)
{
	int fd = fcntl(session_fd(around), F_DUPFD_CLOEXEC, 3), r = fd < 0 ? -errno : 0;
	struct session *s = calloc(1, sizeof(*s));

	if (r == 0 && (!s || !(s->se = new_fuse_session(m))))
		r = -ENOMEM;
	if (r < 0) {
		closep(&fd);
		free(s);
		return r;
	}
	s->m = m;
	s->tell_fd = -1;
	s->is_inside = true;
	r = fuse_session_custom_io(s->se, io, sizeof(*io), fd);
	if (r < 0)
		closep(&fd);
	if (r == 0)
		r = hear_init(s, around);
	if (r < 0) {
		session_free(s);
		return r;
	}
	op_open_settle(m, s->se);
	*ret = s;
	return 0;
}

int session_resume(struct mount *m, int fuse_fd, const void *init, size_t len, enum io_mode io,
		   struct session **ret, char *err, size_t err_size)
{
	struct session *s;
	int r = session_new(m, &s, err, err_size);

	if (r < 0)
		return r;
	r = take_over_fd(s, fuse_fd);
	if (r == 0)
		r = repeat_init(s, init, len);
	if (r == 0)
		r = op_open_resume(m, s->se, io);
	if (r < 0) {
		snprintf(err, err_size, "cannot go on with the mount at %s: %s", m->opts.mountpoint,
			 strerror(-r));
		session_free(s);
		return r;
	}
	s->is_sent_again = ask_again(s);
	/* The device existed when the file system was made; if it is no more, the file system is
	 * gone. */
	if (!s->is_sent_again && !m->is_sb_member) {
		/* The kernel ended these requests when the descriptor that the dead server read by
		 * was closed. */
		s->invalidate = kernel_invalidate_take(m->key);
		end_by_clone(s);
	}
	s->kept_fd = fuse_fd;
	atomic_store(&s->awaits_others, s->is_sent_again && !m->is_sb_member);
	*ret = s;
	return 0;
}

bool session_is_sent_again(const struct session *s)
{
	return s->is_sent_again;
}

/* Does something wait to be read? All that comes again waits from session_resume on. */
static bool has_request(const struct session *s)
{
	struct pollfd p = { .fd = session_fd(s), .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* Once nothing does, and what was read has been noted, the others are those whose callers were
 * killed before they came again: the kernel gives such a request up. */
static void look_for_others(struct session *s)
{
	if (atomic_load(&s->awaits_others) && !has_request(s) && atomic_load(&s->n_taking) == 0 &&
	    atomic_exchange(&s->awaits_others, false))
		kernel_invalidate_tell(kernel_invalidate_take_left(s->m->key), s->kept_fd);
}

/* Before a request is read. True: it may come again, end_taking must follow. */
static bool begin_taking(struct session *s)
{
	if (!atomic_load(&s->awaits_others))
		return false;
	atomic_fetch_add(&s->n_taking, 1);
	if (has_request(s))
		return true;
	atomic_fetch_sub(&s->n_taking, 1);
	look_for_others(s);
	return false;
}

/* buf: NULL, nothing was read. */
static void end_taking(struct session *s, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf ? buf->mem : NULL;

	if (in && buf->size >= sizeof(*in) && in->unique & OP_UNIQUE_RESENT)
		intent_log_came_again(s->m->key, in->unique & ~OP_UNIQUE_RESENT);
	atomic_fetch_sub(&s->n_taking, 1);
	look_for_others(s);
}

void session_invalidate(struct session *s, int fuse_fd)
{
	kernel_invalidate_tell(steal_ptr(&s->invalidate), fuse_fd);
	look_for_others(s);
}

const void *session_init(const struct session *s, size_t *ret_len)
{
	*ret_len = s->init.len;
	return s->init.data;
}

/* An interrupt whose request had been answered is kept by libfuse, which lets go of one with each
 * request that comes, and of none with the session. */
static void let_interrupts_go(struct session *s)
{
	struct fuse_in_header in = { .len = sizeof(in), .opcode = FUSE_DESTROY };
	const struct fuse_buf buf = { .size = sizeof(in), .mem = &in };

	fuse_session_exit(s->se); /* that these cannot be answered is not said */
	for (int i = 0; i < INTERRUPTS_KEPT; i++)
		fuse_session_process_buf(s->se, &buf);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	/* Their requests are libfuse's, and go with it. */
	if (s->m->tree.locks)
		locks_end(s->m->tree.locks, -ENODEV);
	if (s->m->tree.locks && !s->is_inside)
		let_interrupts_go(s);
	kernel_invalidate_free(s->invalidate);
	closep(&s->tell_fd);
	buf_release(&s->init);
	fuse_session_destroy(s->se);
	free(s);
}

struct mount *session_mount(struct session *s)
{
	return s->m;
}

int session_fd(const struct session *s)
{
	return fuse_session_fd(s->se);
}

/* Room for the largest request, and all of it there: where a server is killed while the kernel
 * copies a request to a page that is not, the request is over, with EIO, and does not come again.
 * So it would be with pages that a process beside (kernel_invalidate_tell) has as well, until they
 * are written to: it does not get them. libfuse reads no more than max_write and a page. */
_Static_assert(SESSION_BUFFER_BYTES >= SESSION_MAX_WRITE + 4096, "room for the largest request");

static void prepare(struct fuse_buf *buf)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE),
		     size = (SESSION_BUFFER_BYTES + page - 1) / page * page;

	buf->mem = aligned_alloc(page, size);
	if (buf->mem) {
		madvise(buf->mem, size, MADV_DONTFORK);
		memset(buf->mem, 1, size);
	}
	buf->mem_size = size;
}

int session_receive(struct session *s, struct fuse_buf *buf)
{
	if (!buf->mem && s->m->key)
		prepare(buf);
	for (;;) {
		const bool may_come_again = begin_taking(s);
		int n = fuse_session_receive_buf(s->se, buf);

		if (may_come_again)
			end_taking(s, n > 0 ? buf : NULL);
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

/* libfuse keeps what says that a request is to be interrupted until that request comes, and loses
 * it when the mount ends before. Nothing that we do can be interrupted but the waiting for a
 * lock. */
static bool is_idle_interrupt(const struct session *s, const struct fuse_buf *buf)
{
	return ((const struct fuse_in_header *)buf->mem)->opcode == FUSE_INTERRUPT &&
	       !s->m->tree.locks;
}

/* A request; what is not known may. */
static bool may_change(const struct fuse_in_header *in, size_t size)
{
	const struct fuse_open_in *open_in = (const void *)(in + 1);

	switch (in->opcode) {
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_INTERRUPT:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case KERNEL_STATX:
	case FUSE_READLINK:
	case FUSE_ACCESS:
	case FUSE_READ:
	case FUSE_LSEEK:
	case FUSE_BMAP:
	case FUSE_POLL:
	case FUSE_IOCTL:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_FSYNC:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_RELEASEDIR:
	case FUSE_FSYNCDIR:
	case FUSE_STATFS:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
		return false;
	case FUSE_OPEN:
		return size < sizeof(*in) + sizeof(*open_in) ||
		       open_in->flags & (O_ACCMODE | O_TRUNC);
	default:
		return true;
	}
}

/* True: it has been answered. */
static bool refuse_change(struct session *s, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	struct fuse_out_header out = { .len = sizeof(out), .error = -EROFS };

	if (!s->m->is_frozen || buf->size < sizeof(*in) || !may_change(in, buf->size))
		return false;
	out.unique = in->unique;
	stats_request_failed();
	negotiate_request_extra.result = out.error;
	/* An interrupted caller will never know of it. */
	(void)!write(session_fd(s), &out, sizeof(out));
	return true;
}

/* For -d. Described before it is answered, by which libfuse changes it. */
static void answer_loudly(struct session *s, const struct fuse_buf *buf)
{
	char text[DESCRIPTION_BYTES];

	request_text_describe(buf->mem, buf->size, negotiate_has_setxattr_ext(), text,
			      sizeof(text));
	if (!refuse_change(s, buf))
		fuse_session_process_buf(s->se, buf);
	log_debug("%s: %s", text,
		  negotiate_request_extra.result < 0 ? strerror(-negotiate_request_extra.result)
						     : "ok");
}

static void answer(struct session *s, const struct fuse_buf *buf)
{
	struct intent *note = s->ends_requests ? kernel_invalidate_note(s->m->key, buf) : NULL;
	struct activity *before = activity_begin(s->m->activity);
	const char *about = log_about(s->m->opts.mountpoint);
	const struct negotiate_request_extra extra = negotiate_request_extra;

	stats_request_begin(s->m->tree.stats);
	negotiate_note_extra(s->se, buf);
	negotiate_request_extra.tell_fd = s->tell_fd >= 0 ? s->tell_fd : session_fd(s);
	if (s->m->opts.is_debug)
		answer_loudly(s, buf);
	else if (!refuse_change(s, buf))
		fuse_session_process_buf(s->se, buf);
	stats_request_end();
	/* Outside of requests this thread has no session to tell. */
	negotiate_request_extra = extra;
	log_about(about);
	activity_end(before);
	intent_log_drop_note(note);
}

void session_answer(struct session *s, const struct fuse_buf *buf)
{
	if ((!s->divert || !s->divert(s->divert_arg, buf)) && !is_idle_interrupt(s, buf))
		answer(s, buf);
}
