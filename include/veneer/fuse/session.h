/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE side of one mount: requests are read from a descriptor of /dev/fuse and answered. The
 * pool's threads read them (pool.h). */
#pragma once

#include "veneer/mount/mount.h"

struct buf;
struct fuse_buf;
struct fuse_custom_io;
struct session;

/* The version of the agreement with the kernel at INIT, and so of the form of requests: the next
 * server finds it agreed. */
#define SESSION_INIT_VERSION 4
#define SESSION_BUFFER_BYTES ((1u << 20) + (64u << 10)) /* a request with its data, at most */

/* Answer the kernel's INIT, which waits in fuse_fd: when this returns 0 the mount answers as soon
 * as the session is in a pool. fuse_fd is duplicated, and must not be read elsewhere; m outlives
 * the session. -errno and a sentence otherwise. */
int session_start(struct mount *m, int fuse_fd, struct session **ret, char *err, size_t err_size);
/* The saved state of a session, from one server to the next; borrowed. */
struct session_saved {
	int fuse_fd;
	enum io_mode io; /* m->io, as it was settled */
	const struct buf *init; /* as session_init gave it */
};
/* Go on where another server stopped. The kernel resends the requests that that server had read and
 * not answered. Before 6.9 it has ended them with ECONNABORTED when their descriptor was closed. 0,
 * or -errno and a sentence. */
int session_resume(struct mount *m, const struct session_saved *saved, struct session **ret,
		   char *err, size_t err_size);
/* Does the kernel resend what a dead server had read? Where it does not, a member of a shared
 * superblock ends with the server. */
bool session_has_resend(const struct session *s);
/* Once, after session_resume, when a pool has the session: have the kernel drop, by fuse_fd, names
 * and attributes that requests may have changed which it ended with the dead server. Works on when
 * this has returned. Requests that might be resent and are not follow later, by the saved fuse_fd,
 * which stays open for that. */
void session_invalidate(struct session *s, int fuse_fd);
/* Before the session is served: pass requests to divert first, which answers one and returns true,
 * or leaves it, perhaps changed in place, to the session. */
void session_divert(struct session *s, bool (*divert)(void *arg, const struct fuse_buf *buf),
		    void *arg);
/* A session that reads nothing itself: the outer session, which outlives it, passes requests to
 * session_answer, and replies go to io. 0 or -errno. */
int session_start_inner(struct session *outer, struct mount *m, const struct fuse_custom_io *io,
			struct session **ret);
/* Its mount was left and is open again, at the same address. */
void session_again_inner(struct session *s);
/* The kernel's first request; borrowed. */
const void *session_init(const struct session *s, size_t *ret_len);
/* Free a session that is not served any more and close its connection: users of the mount get
 * ENOTCONN. */
void session_free(struct session *s);
/* Likewise, but session_resume follows: requests that wait for locks are not answered, and the
 * kernel, which can resend them (session_has_resend), does. */
void session_leave(struct session *s);

struct mount *session_mount(struct session *s);
/* For epoll; borrowed. */
int session_fd(const struct session *s);
/* Wait for the next request and read it into buf, which gets its memory if it has none
 * (session_free_buffer).
 * 1; -EINTR: a signal came; or -errno: the mount is gone (-ENODEV), or cannot be read. Any
 * thread. */
int session_receive(struct session *s, struct fuse_buf *buf);
void session_free_buffer(struct fuse_buf *buf);
/* Answer a request. Any thread; may take as long as a disk takes. */
void session_answer(struct session *s, const struct fuse_buf *buf);
