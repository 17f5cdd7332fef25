/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE side of one mount: negotiation, and the threads that answer requests. */
#pragma once

#include "veneer/mount.h"

struct session;

/* Mount at m->opts.mountpoint and answer the kernel's INIT: when this returns 0 the mount answers. -errno and
 * a sentence otherwise. m outlives the session. */
int session_start(struct mount *m, struct session **ret, char *err, size_t err_size);
/* Serve until the mount is gone or session_stop. Starts its threads here, so a caller that forks does so
 * before. */
void session_run(struct session *s);
/* Unmount, lazily; session_run returns when nobody uses the mount any more. -ENOENT: it is not at its place any
 * more. Any thread. */
int session_stop(struct session *s);
/* The mount is detached but in use: stop answering, so that session_run returns; whoever uses it gets ENOTCONN.
 * -ETIMEDOUT: a request does not come to its end, and some threads still run. */
int session_end(struct session *s);
/* The mount is nowhere to be seen in our mount namespace: who still uses it has it open, or is in a namespace of its
 * own. In doubt no. */
bool session_is_detached(struct session *s);
void session_free(struct session *s);
