// SPDX-License-Identifier: Apache-2.0
#include "responder.h"

#include "kernel_invalidate.h"
#include "op.h"
#include "request_text.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/recover/activity.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

/* Newer than the headers of the systems we build on. */
#define KERNEL_STATX	  52
#define DESCRIPTION_BYTES 1024u /* of a request, for -d */

/* Only a wait for a lock can be interrupted. libfuse keeps an interrupt until its request comes,
 * and leaks it if the mount ends before. */
static bool is_idle_interrupt(const struct responder *r, const struct fuse_buf *buf)
{
	return ((const struct fuse_in_header *)buf->mem)->opcode == FUSE_INTERRUPT &&
	       !r->m->tree.locks;
}

/* Unknown requests may. */
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

/* True: the request has been answered. */
static bool refuse_change(const struct responder *r, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	struct fuse_out_header out = { .len = sizeof(out), .error = -EROFS };

	if (!r->m->is_frozen || buf->size < sizeof(*in) || !may_change(in, buf->size))
		return false;
	out.unique = in->unique;
	stats_request_failed();
	negotiate_request_extra.result = out.error;
	/* Fails for an interrupted request, which needs no answer. */
	(void)!write(fuse_session_fd(r->se), &out, sizeof(out));
	return true;
}

static void carry_out(const struct responder *r, const struct fuse_buf *buf)
{
	if (refuse_change(r, buf))
		return;
	fuse_session_process_buf(r->se, buf);
	/* The state of the request for a next server, until the reply is out. */
	intent_log_end(intent_log_current());
}

/* For -d. Described first, as libfuse changes the request. */
static void carry_out_logged(const struct responder *r, const struct fuse_buf *buf)
{
	char text[DESCRIPTION_BYTES];

	request_text_describe(buf->mem, buf->size, negotiate_has_setxattr_ext(), text,
			      sizeof(text));
	carry_out(r, buf);
	log_debug("%s: %s", text,
		  negotiate_request_extra.result < 0 ? strerror(-negotiate_request_extra.result)
						     : "ok");
}

static void answer(const struct responder *r, const struct fuse_buf *buf)
{
	const struct unanswered *u = r->unanswered;
	struct intent *note = u->has_clone ? kernel_invalidate_note(r->m->key, buf) : NULL;
	struct activity *before = activity_begin(r->m->activity);
	const char *about = log_about(r->m->opts.mountpoint);
	const struct negotiate_request_extra extra = negotiate_request_extra;

	stats_request_begin(r->m->tree.stats);
	negotiate_note_extra(r->se, buf);
	negotiate_request_extra.notify_fd = u->notify_fd >= 0 ? u->notify_fd
							      : fuse_session_fd(r->se);
	if (r->m->opts.is_debug)
		carry_out_logged(r, buf);
	else
		carry_out(r, buf);
	stats_request_end();
	/* Outside of requests this thread has no session to notify. */
	negotiate_request_extra = extra;
	log_about(about);
	activity_end(before);
	intent_log_drop_note(note);
}

void responder_answer(const struct responder *r, const struct fuse_buf *buf)
{
	if ((!r->divert || !r->divert(r->divert_arg, buf)) && !is_idle_interrupt(r, buf))
		answer(r, buf);
}
