/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that answer the requests of all mounts of a process. They wait in one epoll set; one
 * is always left to wait: a thread that takes the last idle one's place starts another, so that
 * requests that wait for a disk do not stop those that need none. No mount may have more threads
 * than are left of the bound, and one that has none gets one always, so that slow ones, however
 * many, starve no other. (64 mounts: 3 threads instead of the 193 of one loop a mount,
 * shared/measured.md H.) */
#pragma once

#include "veneer/fuse/session.h"

struct pool;

/* max_threads: at least 2; exceeded by one for each member at most, and one. 0 or -errno. */
int pool_new(unsigned max_threads, struct pool **ret);
/* Serve s. ended is called once, on a thread of its own, when the mount is gone and no request of
 * it runs any more: it owns the session from then on, and may block. The number stands for it for
 * ever. 0 or -errno (ended is not called). Any thread. */
int pool_add(struct pool *p, struct session *s, void (*ended)(struct session *s, void *arg),
	     void *arg, uint64_t *ret_number);
/* Stop answering, also where the mount is in use: what runs is finished, and ended lets go of the
 * rest. 0 at once if it is gone already. -ETIMEDOUT: a request does not come to its end within
 * timeout_ms; ended is called when it does. */
int pool_end(struct pool *p, uint64_t number, unsigned timeout_ms);
/* The number of members whose `ended` has not returned. */
size_t pool_count(struct pool *p);
/* Ends the threads, and waits for them. There are no members. */
void pool_free(struct pool *p);
