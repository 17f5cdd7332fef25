/* SPDX-License-Identifier: Apache-2.0 */
/* Completes the partial files of live uppers (HP-Mapper's defragmentation): the picks of
 * promote_policy.h, in idle time; or all of them, on request. One thread serves all mounts of the
 * process. The first mount that wants it starts it, and it sleeps without a time-out while no block
 * of such a mount becomes own. */
#pragma once

#include "veneer/base/promote_policy.h"
#include "veneer/union/inode.h"

struct promote_worker;

/* For one mount, in any mode; after the last fork, before its first change. rate: bytes a second of
 * PROMOTE_POLICY_AUTO; max_bytes: the limit of PROMOTE_POLICY_WRITTEN, until it is stopped. 0 or
 * -errno. t outlives it. */
int promote_worker_start(struct union_fs *t, enum promote_policy_mode mode, uint64_t rate,
			 uint64_t max_bytes, struct promote_worker **ret);
/* Stop after the present chunk or sync, and wait for that. NULL is ignored. */
void promote_worker_stop(struct promote_worker *p);

/* Completing all partial files of a mount, at once. */
struct promote_worker_job;

struct promote_worker_progress {
	size_t files, nfiles; /* completed so far, and in the map at first */
	size_t left; /* files that could not be completed, each with a logged line */
	uint64_t bytes, cloned; /* filled from lower files so far, and of that without copying */
	uint64_t nbytes; /* to be filled by the map at first, holes too; 0: not known */
};

/* 0; -EBUSY: a job of this mount is running; -errno. */
int promote_worker_ask(struct promote_worker *p, struct promote_worker_job **ret);
/* Wait for the end of the job, at most timeout_ms. 1: it goes on; 0: it is done; -ECANCELED: the
 * mount ended; other -errno: it had to stop. Fills *ret in all cases. Does not use the mount. */
int promote_worker_job_wait(struct promote_worker_job *j, unsigned timeout_ms,
			    struct promote_worker_progress *ret);
/* Cancels a running job. */
void promote_worker_job_free(struct promote_worker_job *j);
