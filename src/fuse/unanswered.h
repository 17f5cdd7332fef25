/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that a server read and did not answer before it died. Linux 6.9 and newer resend them to
 * the next server. An older kernel ends them when the descriptor that they were read by is closed;
 * the next server then has the kernel forget their possible changes (kernel_invalidate.h). */
#pragma once

#include "veneer/mount/mount.h"

#include <fuse_lowlevel.h>
#include <stdatomic.h>

/* No lock: fields that are not atomic are set before the session is served. */
struct unanswered {
	struct mount *m;
	struct fuse_session *se;
	bool has_resend; /* the kernel resends them; else, */
	bool has_clone; /* requests are read by a clone of the descriptor, */
	int notify_fd; /* and this one keeps the mount alive; -1 */
	struct kernel_invalidate *invalidate; /* of the dead server's requests; NULL: nothing */
	/* While requests may be resent: the descriptor to invalidate changes of the others, and the
	 * number of threads that read a request that may be resent. */
	_Atomic bool awaits_resent;
	int kept_fd;
	_Atomic unsigned n_reading;
};

void unanswered_init(struct unanswered *u, struct mount *m, struct fuse_session *se);
void unanswered_release(struct unanswered *u);
/* The connection is new, and the kernel has its answer to INIT. */
void unanswered_start(struct unanswered *u);
/* The connection was a dead server's. kept_fd is borrowed, until the session ends. */
void unanswered_resume(struct unanswered *u, int kept_fd);
/* Before a request is read. True: it may be a resent one, unanswered_read_end must follow, with
 * NULL if nothing was read. */
bool unanswered_read_begin(struct unanswered *u);
void unanswered_read_end(struct unanswered *u, const struct fuse_buf *buf);
/* As session_invalidate. */
void unanswered_invalidate(struct unanswered *u, int fuse_fd);
