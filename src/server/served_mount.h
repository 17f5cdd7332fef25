/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the table of mounts. mount_table.c opens, serves and reopens them;
 * mount_table_end.c and mount_table_find.c end and find them. */
#pragma once

#include "saved_mount.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/server/mount_table.h"

#define SERVED_MOUNT_END_WAIT_MS 5000u /* limit for a request */

struct replacement;

struct served_mount {
	struct list_link link;
	struct mount_table *mount_table;
	struct mount mount;
	struct served_place at;
	uint64_t number; /* in the pool */
	uint64_t id; /* the table's number, never reused */
	uint32_t limiter_number; /* in page_dup_limiter.h; 0: none */
	uint32_t shrinker_number; /* in inode_shrinker.h; 0: none */
	int takeover_fd;
	struct hosted_member *hosted_member; /* NULL: the mount has a superblock of its own */
	struct saved_mount kept;
	bool has_mount; /* the mount is open and has to be closed */
	bool is_unkept; /* not saved: the next server will not have it */
	/* guarded by the table's lock */
	unsigned pins;
	bool is_pooled; /* its session is in the pool and has not ended */
	bool is_ending; /* its session is being ended */
	bool is_replaced; /* from the end of one session to the start of the next */
	struct replacement *replacement; /* asked for and not begun; NULL: none */
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
	GUARDED_BY(lock) size_t count; /* with mounts that are not started yet or closing */
	GUARDED_BY(lock) unsigned endings; /* threads of served_mount_end */
	GUARDED_BY(lock) uint64_t next_id;
	GUARDED_BY(lock) bool ends; /* all mounts are ending */
	GUARDED_BY(lock) bool is_resuming; /* mounts of a dead server remain to be resumed */
	GUARDED_BY(lock) unsigned n_replacing; /* mounts that are being reopened */
	GUARDED_BY(lock) uint64_t n_replaced; /* changes that have begun, running ones included */
};

/* Pin the mount with this id (is_exact), or the next started one above it. NULL: none. */
struct served_mount *served_mount_pin_after(struct mount_table *r, uint64_t id, bool is_exact);
void served_mount_unpin(struct served_mount *s);
/* Take the mount out of the list, so that no other thread finds it, and wait until it is not
 * pinned. */
void served_mount_delist(struct served_mount *s);
/* Remove the mount from page and inode management, or add it. Requests must be answered
 * meanwhile. */
void served_mount_leave_jobs(struct served_mount *s);
void served_mount_enter_jobs(struct served_mount *s);
/* End its session, on a thread of its own: a request that does not end must not hold up the caller.
 * Does nothing the second time. */
void served_mount_end(struct served_mount *s);
/* Is a thread of served_mount_end still running? */
bool served_mount_has_endings(struct mount_table *r);
