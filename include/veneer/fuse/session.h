/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE side of one mount: its requests are taken from a descriptor of /dev/fuse and answered.
 * The pool's threads take them (pool.h). */
#pragma once

#include "veneer/mount/mount.h"

struct session;

/* Of what is agreed on with the kernel at INIT, and of what requests look like after it: a server
 * that takes over finds it agreed. */
#define SESSION_INIT_VERSION 3
#define SESSION_BUFFER_BYTES ((1u << 20) + (64u << 10)) /* a request with its data, at most */
struct fuse_buf;
struct fuse_custom_io;

/* Answer the kernel's INIT, which waits in fuse_fd: when this returns 0 the mount answers as soon
 * as the session is in a pool. fuse_fd is duplicated, and must not be read elsewhere; m outlives
 * the session. -errno and a sentence otherwise. */
int session_start(struct mount *m, int fuse_fd, struct session **ret, char *err, size_t err_size);
/* Go on where another server stopped: fuse_fd, with what session_init gave there, and the mode of
 * m->io that was settled then. What that server had taken and not answered comes again; or, on a
 * kernel that cannot send it again (before 6.9), was ended with ECONNABORTED when what it was read
 * by was closed. 0, or -errno and a sentence. */
int session_resume(struct mount *m, int fuse_fd, const void *init, size_t len, enum io_mode io,
		   struct session **ret, char *err, size_t err_size);
/* Does the kernel send again what a dead server had read? Where it does not, a member of a shared
 * superblock ends with the server. */
bool session_is_sent_again(const struct session *s);
/* Then, when a pool has it: have the kernel forget what it believes wrongly since requests of that
 * server were ended; by its fuse_fd. Once. It goes on when this has returned. So it is with those
 * that might have come again and do not, once that is certain: by session_resume's fuse_fd, which
 * stays open for that. */
void session_invalidate(struct session *s, int fuse_fd);
/* From now on requests go to divert first, which answers one and says so, or leaves it to the
 * session, perhaps changed in place. Before anything is served. */
void session_divert(struct session *s, bool (*divert)(void *arg, const struct fuse_buf *buf),
		    void *arg);
/* A session that reads nothing itself: the outer session, which outlives it, passes requests to
 * session_answer, and replies go to io. 0 or -errno. */
int session_inside(struct session *around, struct mount *m, const struct fuse_custom_io *io,
		   struct session **ret);
/* The kernel's first request; borrowed. */
const void *session_init(const struct session *s, size_t *ret_len);
/* Free a session that is not served any more, and let go of the mount, whose users get ENOTCONN. */
void session_free(struct session *s);

struct mount *session_mount(struct session *s);
/* For epoll; borrowed. */
int session_fd(const struct session *s);
/* Wait for the next request and take it into buf, which grows as needed and is free(buf->mem)'s. 1;
 * -EINTR: a signal came; or -errno: the mount is gone (-ENODEV), or cannot be read. Any thread. */
int session_receive(struct session *s, struct fuse_buf *buf);
/* Answer it. Any thread; may take as long as a disk takes. */
void session_answer(struct session *s, const struct fuse_buf *buf);
