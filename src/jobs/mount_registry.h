/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts that a background thread works for. The thread pins a mount and drops the lock while
 * it works; a thread that takes that mount out waits. */
#pragma once

#include "veneer/base/list.h"
#include "veneer/base/lock.h"

#include <pthread.h>
#include <stdint.h>

struct mount_registry {
	mutex_t lock;
	pthread_cond_t unpinned; /* with the lock; the user may wait on it for other changes */
	GUARDED_BY(lock) struct list_link members; /* numbers ascend */
	GUARDED_BY(lock) uint32_t last_number;
};
#define MOUNT_REGISTRY_INIT(r)                                                           \
	{                                                                                \
		.lock = PTHREAD_MUTEX_INITIALIZER, .unpinned = PTHREAD_COND_INITIALIZER, \
		.members = {                                                             \
			&(r).members,                                                    \
			&(r).members                                                     \
		}                                                                        \
	}

/* Embedded in the user's struct of a mount, zeroed at first, and not freed before
 * mount_registry_leave. */
struct mount_registry_member {
	struct list_link link;
	uint32_t number; /* from 1, each given once */
	bool is_pinned; /* the thread sets this */
	bool is_leaving;
};

void mount_registry_enter(struct mount_registry *r, struct mount_registry_member *m)
	REQUIRES(r->lock);
/* The member after m, or the first; NULL: none. Skips members that are leaving. */
struct mount_registry_member *mount_registry_next(struct mount_registry *r,
						  struct mount_registry_member *m)
	REQUIRES(r->lock);
/* NULL: it is gone, or leaving. */
struct mount_registry_member *mount_registry_find(struct mount_registry *r, uint32_t number)
	REQUIRES(r->lock);
void mount_registry_unpin(struct mount_registry *r, struct mount_registry_member *m)
	REQUIRES(r->lock);
/* Wait until the member is not pinned, take it out and give it to the caller. NULL: there is none
 * with that number, or another thread took it out. */
struct mount_registry_member *mount_registry_leave(struct mount_registry *r, uint32_t number)
	REQUIRES(r->lock);
