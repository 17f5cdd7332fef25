/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the registry of shared superblocks. sb_registry.c has the superblocks and finds the
 * one for a mount. Above it, sb_registry_member.c has their members, and sb_registry_serve.c serves
 * them. sb_registry_load.c resumes the superblocks of a dead server. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/server/sb_registry.h"

#include "saved_mount.h"
#include "veneer/base/list.h"
#include "veneer/sharedsb/shared_sb.h"

#include <pthread.h>

#define SB_REGISTRY_TICK_MS 250

enum state { FORMING, OPEN, OVER };

struct hosted_sb {
	struct list_link link;
	struct sb_registry *cs;
	struct mount mount;
	struct shared_sb *shared_sb;
	unsigned dev_major, dev_minor;
	uint64_t key; /* of the mount */
	bool has_mount; /* the mount is open and has to be closed */
	struct saved_mount kept; /* its fuse_fd: for mounts that join; -1: none */
	uint64_t number; /* in the pool */
	/* guarded by the lock of all */
	int64_t since_ms; /* start of FORMING */
	enum state state;
	bool is_left; /* FORMING again without a founder: only a search by key finds it */
	unsigned holds; /* by threads that seek it, by members, by other threads, and by the pool */
	struct list_link members;
	struct hosted_member *last; /* the last member to leave; its `ended` waits until the common
				       mount has closed its layers */
};

struct hosted_member {
	struct list_link link;
	struct hosted_sb *common;
	struct sb_member *sb_member;
	void *owner;
	const char *mountpoint; /* borrowed from the owner */
	ino_t mount_ns;
	pid_t seen_by; /* a process of that namespace, the last one asked */
	int64_t next_ms; /* earliest time of the next look */
	uint64_t round; /* the last round that looked for this member */
	/* guarded by the lock of all */
	bool is_bound, is_abandoned, is_unused, is_forgotten, is_leaving, is_wanted;
};

struct sb_registry {
	struct pool *pool;
	struct supervisor_state *supervisor_state; /* NULL: none */
	const struct sb_registry_owner_calls *calls;
	mutex_t lock;
	pthread_cond_t changed;
	GUARDED_BY(lock) struct list_link all;
	GUARDED_BY(lock) size_t count; /* members */
	GUARDED_BY(lock) unsigned threads;
	GUARDED_BY(lock) uint64_t round;
	GUARDED_BY(lock) bool is_stopping, is_watched;
	/* is_wanted: look at all members now; is_hurried: look at the members that are due */
	GUARDED_BY(lock) bool is_wanted, is_hurried;
};

static inline struct hosted_sb *common_of(struct list_link *l)
{
	return container_of(l, struct hosted_sb, link);
}

/* A new superblock: empty, FORMING, held by the caller, and not in the list. NULL: no memory. */
struct hosted_sb *sb_registry_sb_new(struct sb_registry *cs);
/* Give up a hold. */
void sb_registry_sb_release(struct hosted_sb *c);
/* The superblock after last (NULL: the first), held; last is released. NULL: there is none. */
struct hosted_sb *sb_registry_hold_next(struct sb_registry *cs, struct hosted_sb *last);
/* Tell the registry that the kernel has forgotten the root of a member. */
void sb_registry_note_unused(void *owner);
/* Wait for a change, at most ms. The caller holds the lock. */
void sb_registry_wait_locked(struct sb_registry *cs, unsigned ms);
/* Start a detached thread, which counts until sb_registry_end_thread. 0 or -errno. */
int sb_registry_start_thread(struct sb_registry *cs, void *(*fn)(void *arg), void *arg);
/* Run fn on a new thread, or in the caller if no thread can be started. */
void sb_registry_run(struct sb_registry *cs, void *(*fn)(void *arg), void *arg);
void sb_registry_end_thread(struct sb_registry *cs);
/* Start a thread for each member that is to leave; the member leaves there. */
void sb_registry_let_leave(struct hosted_sb *c);

/* Serve the superblock from now on; its mount, its superblock and the session exist. The session is
 * taken over, also on failure. 0, or -errno and a sentence. */
int sb_registry_sb_serve(struct hosted_sb *c, struct session *session, char *err, size_t err_size);
