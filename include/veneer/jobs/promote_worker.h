/* SPDX-License-Identifier: Apache-2.0 */
/* Completing the partial files of live uppers (HP-Mapper's defragmentation): what promote_policy.h
 * says is worth it, in idle time; or all of them, on request. One thread serves all mounts of the
 * process; it is there once a mount wants it, and sleeps without a time-out while no block of such
 * a mount becomes its own. */
#pragma once

#include "veneer/base/promote_policy.h"
#include "veneer/union/inode.h"

struct promote_worker;

/* For one mount, whatever its mode is; after the last fork, before its first change. rate: bytes a
 * second of PROMOTE_POLICY_AUTO. 0 or -errno. t outlives it. */
int promote_worker_start(struct union_fs *t, enum promote_policy_mode mode, uint64_t rate,
			 struct promote_worker **ret);
/* Ends what is under way with its present chunk or sync, and waits for that. NULL is ignored. */
void promote_worker_stop(struct promote_worker *p);

/* Completing all partial files of a mount, at once. */
struct promote_worker_job;

struct promote_worker_progress {
	size_t files, nfiles; /* made ordinary so far, and how many the map knew of at first */
	size_t left; /* those that could not be; each was named in a logged line */
	uint64_t bytes, cloned; /* brought in from below so far, and of that without copying */
	uint64_t nbytes; /* what the map said at first is to be brought in, holes too; 0: not
			  * known */
};

/* 0; -EBUSY: it is running already; -errno. */
int promote_worker_ask(struct promote_worker *p, struct promote_worker_job **ret);
/* Wait for its end, but no longer than that. 1: it goes on; 0: it is done; -ECANCELED: the mount
 * ended; other -errno: it had to stop. *ret is filled in all cases. Needs nothing of the mount. */
int promote_worker_job_wait(struct promote_worker_job *j, unsigned timeout_ms,
			    struct promote_worker_progress *ret);
/* Gives it up if it is under way. */
void promote_worker_job_free(struct promote_worker_job *j);
