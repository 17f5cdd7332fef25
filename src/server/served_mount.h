/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the table of mounts: mount_table.c opens, serves and ends them, mount_replace.c
 * opens one anew while it is used. */
#pragma once

#include "saved_mount.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/server/mount_table.h"

#define SERVED_MOUNT_END_WAIT_MS 5000u /* for a request */

struct replacement;

struct served_mount {
	struct list_link link;
	struct mount_table *mount_table;
	struct mount mount;
	struct served_place at;
	uint64_t number; /* in the pool */
	uint64_t id; /* of ours, never used twice */
	uint32_t limiter_number; /* page_dup_limiter.h's number of it; 0: none */
	uint32_t shrinker_number; /* inode_shrinker.h's, likewise */
	int takeover_fd;
	struct hosted_member *hosted_member; /* NULL: it has a file system of its own */
	struct saved_mount kept;
	bool has_mount; /* to be closed */
	bool is_unkept; /* the next server will not have it */
	/* guarded by the table's lock */
	unsigned pins;
	bool is_pooled; /* it has a session, which has not ended */
	bool is_ending; /* ... and is to end */
	bool is_replaced; /* from the end of one session to the begin of the next */
	struct replacement *replacement; /* asked for and not begun; NULL */
};

struct mount_table {
	void (*changed)(void *arg);
	void *arg;
	struct supervisor_state *supervisor_state; /* NULL: none */
	struct pool *pool;
	struct sb_registry *commons;
	int epoll_fd;
	mutex_t lock;
	pthread_cond_t unpinned;
	GUARDED_BY(lock) struct list_link started;
	GUARDED_BY(lock) size_t count; /* those not started, and those being closed, too */
	GUARDED_BY(lock) unsigned endings; /* threads of served_mount_end */
	GUARDED_BY(lock) uint64_t next_id;
	GUARDED_BY(lock) bool ends; /* all are to end */
	GUARDED_BY(lock) bool is_resuming; /* some of a dead server's are to be resumed */
	GUARDED_BY(lock) unsigned n_replacing; /* mounts that are being opened anew */
	GUARDED_BY(lock) uint64_t n_replaced; /* those included */
};

/* The next that is started and has an id above this, or this one, pinned; or NULL. */
struct served_mount *served_mount_pin_after(struct mount_table *r, uint64_t id, bool is_exact);
void served_mount_unpin(struct served_mount *s);
/* Nobody else looks at it from now on. Waits until it is not pinned. */
void served_mount_delist(struct served_mount *s);
/* Take the mount out of page and inode management, while requests are answered, and into it. */
void served_mount_leave_jobs(struct served_mount *s);
void served_mount_enter_jobs(struct served_mount *s);
/* End its session: on a thread of its own, as a request that does not end must not hold up the
 * caller. Nothing, if that was asked for already. */
void served_mount_end(struct served_mount *s);
/* Are there such threads? */
bool served_mount_has_endings(struct mount_table *r);
