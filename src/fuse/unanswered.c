// SPDX-License-Identifier: Apache-2.0
#include "unanswered.h"

#include "kernel_invalidate.h"
#include "op.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

/* Newer than the headers of the systems we build on. */
#define KERNEL_NOTIFY_RESEND 7

void unanswered_init(struct unanswered *u, struct mount *m, struct fuse_session *se)
{
	*u = (struct unanswered){ .m = m, .se = se, .notify_fd = -1 };
}

void unanswered_release(struct unanswered *u)
{
	kernel_invalidate_free(u->invalidate);
	closep(&u->notify_fd);
}

/* Have the kernel resend the requests that were read and not answered, with a mark (op.h,
 * is_resent). False: the kernel, older than 6.9, cannot do so. Right after INIT nothing is
 * unanswered, and the call only finds out whether the kernel can. */
static bool request_resend(const struct unanswered *u)
{
	const struct fuse_out_header out = { .len = sizeof(out), .error = KERNEL_NOTIFY_RESEND };

	return !getenv("VENEER_NO_RESEND") &&
	       write(fuse_session_fd(u->se), &out, sizeof(out)) == (ssize_t)sizeof(out);
}

/* A request belongs to the open file that it was read by. The kernel ends the requests of a clone
 * when the clone is closed, and the mount lives on by the first descriptor: no program waits for
 * ever for a server that is dead. */
static int read_by_clone(struct unanswered *u)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	const int session_fd = fuse_session_fd(u->se);
	uint32_t of = (uint32_t)session_fd;

	u->notify_fd = fcntl(session_fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || u->notify_fd < 0 || ioctl(fd, FUSE_DEV_IOC_CLONE, &of) < 0 ||
	    dup3(fd, session_fd, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static void end_by_clone(struct unanswered *u)
{
	int r = read_by_clone(u);

	u->has_clone = r == 0;
	if (r < 0)
		log_warn("%s: cannot end requests of a dead server: if the server crashes, "
			 "blocked programs hang: %s",
			 u->m->opts.mountpoint, strerror(-r));
}

void unanswered_start(struct unanswered *u)
{
	u->has_resend = u->m->key && request_resend(u);
	if (u->m->key && !u->has_resend && !u->m->is_sb_member)
		end_by_clone(u);
}

void unanswered_resume(struct unanswered *u, int kept_fd)
{
	u->has_resend = request_resend(u);
	/* The device existed when the file system was made; if it is no more, the file system is
	 * gone. */
	if (!u->has_resend && !u->m->is_sb_member) {
		/* The kernel ended these requests when the descriptor that the dead server read by
		 * was closed. */
		u->invalidate = kernel_invalidate_take(u->m->key);
		end_by_clone(u);
	}
	u->kept_fd = kept_fd;
	atomic_store(&u->awaits_resent, u->has_resend && !u->m->is_sb_member);
}

/* Does a request wait to be read? All resent ones wait from unanswered_resume on. */
static bool has_request(const struct unanswered *u)
{
	struct pollfd p = { .fd = fuse_session_fd(u->se), .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* Once no request waits, and all requests read have been noted, the other callers were killed
 * before their requests were resent: the kernel gives such a request up. */
static void invalidate_left(struct unanswered *u)
{
	if (atomic_load(&u->awaits_resent) && !has_request(u) && atomic_load(&u->n_reading) == 0 &&
	    atomic_exchange(&u->awaits_resent, false))
		kernel_invalidate_send(kernel_invalidate_take_left(u->m->key), u->kept_fd);
}

bool unanswered_read_begin(struct unanswered *u)
{
	if (!atomic_load(&u->awaits_resent))
		return false;
	atomic_fetch_add(&u->n_reading, 1);
	if (has_request(u))
		return true;
	atomic_fetch_sub(&u->n_reading, 1);
	invalidate_left(u);
	return false;
}

void unanswered_read_end(struct unanswered *u, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf ? buf->mem : NULL;

	if (in && buf->size >= sizeof(*in) && in->unique & OP_UNIQUE_RESENT)
		intent_log_came_again(u->m->key, in->unique & ~OP_UNIQUE_RESENT);
	atomic_fetch_sub(&u->n_reading, 1);
	invalidate_left(u);
}

void unanswered_invalidate(struct unanswered *u, int fuse_fd)
{
	kernel_invalidate_send(steal_ptr(&u->invalidate), fuse_fd);
	invalidate_left(u);
}
