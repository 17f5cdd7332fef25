/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that answer the requests of all mounts of a process. They wait in one epoll set. The
 * last idle thread starts another before it serves, so that requests that wait for a disk do not
 * stop the others. No mount may have more threads than are left of the bound, and a mount without a
 * thread always gets one, so that slow mounts, however many, starve no other. (64 mounts: 3 threads
 * instead of the 193 of one loop a mount, shared/measured.md H.) */
#pragma once

#include "veneer/fuse/session.h"

struct pool;

/* max_threads: at least 2; exceeded by one for each member at most, and one. 0 or -errno. */
int pool_new(unsigned max_threads, struct pool **ret);
/* Serve s. ended is called once, on a thread of its own, when the mount is gone and no request of
 * it runs any more: it owns the session from then on, and may block. The number is never used
 * again. 0 or -errno (ended is not called). Any thread. */
int pool_add(struct pool *p, struct session *s, void (*ended)(struct session *s, void *arg),
	     void *arg, uint64_t *ret_number);
/* Stop answering, also while the mount is in use: running requests are finished, and ended drops
 * the others. 0, also if the mount is gone already. -ETIMEDOUT: a request takes longer than
 * timeout_ms; ended is called after it. */
int pool_end(struct pool *p, uint64_t number, unsigned timeout_ms);
/* Go on after such a time-out. 0; -ENOENT: it has ended after all; -errno, and it ends. */
int pool_resume(struct pool *p, uint64_t number);
/* The number of members whose `ended` has not returned. */
size_t pool_count(struct pool *p);
/* End the threads and wait for them. The pool has no members. */
void pool_free(struct pool *p);
