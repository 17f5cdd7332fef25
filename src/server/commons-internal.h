/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the gatherings of a server: commons.c has their life, commonsload.c takes up those of a server that is
 * dead. */
#pragma once

#include "veneer/commons.h"

#include "veneer/gather.h"
#include "veneer/kept.h"
#include "veneer/list.h"

#include <pthread.h>

#define COMMONS_TICK_MS 250

enum state { FORMING, OPEN, OVER };

struct common {
	struct list_link link;
	struct commons *cs;
	struct mount mount;
	struct gather *gather;
	unsigned dev_major, dev_minor;
	uint64_t key;		/* its mount's */
	bool has_mount;		/* to be closed */
	struct kept kept;	/* its fuse_fd: for those who join; -1 */
	uint64_t number;	/* in the pool */
	/* guarded by the lock of all */
	int64_t since_ms;	/* it is FORMING */
	enum state state;
	bool is_left;		/* forming again: found by its key alone */
	unsigned holds;		/* of those who seek, members, threads, and of the pool */
	struct list_link members;
	struct commoner *last;	/* has left, and has not ended: else what the common mount holds would be kept beyond that */
};

struct commoner {
	struct list_link link;
	struct common *common;
	struct gathered *gathered;
	void *owner;
	const char *mountpoint;	/* the owner's */
	ino_t mount_ns;
	pid_t seen_by;		/* a process of that namespace, which was asked last */
	int64_t next_ms;	/* not before that */
	uint64_t round;		/* in which it was looked for last */
	/* guarded by the lock of all */
	bool is_bound, is_abandoned, is_unused, is_forgotten, is_leaving, is_wanted;
};

struct commons {
	struct pool *pool;
	struct ledger *ledger;	/* NULL: none */
	void (*ended)(void *owner);
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* guarded by lock */
	struct list_link all;
	size_t count;		/* members */
	unsigned threads;
	uint64_t round;
	bool is_stopping, is_watched;
	bool is_wanted, is_hurried;	/* look now at all; at those for which it is time */
};

static inline struct common *common_of(struct list_link *l)
{
	return (struct common *)((char *)l - offsetof(struct common, link));
}

/* Empty, forming, and held by the caller; nobody finds it. NULL: no memory. */
struct common *common_new(struct commons *cs);
/* Give up a hold. */
void common_release(struct common *c);
/* The one after it, which is held itself (NULL: the first), held; NULL: there is none. */
struct common *common_hold_next(struct commons *cs, struct common *last);
/* Told of a member that the kernel does not know any more. */
void common_note_unused(void *owner);
/* Its mount and gathering are there, and the session is: it is served from now on. The session is taken over, also on
 * failure. 0, or -errno and a sentence. */
int common_serve(struct common *c, struct session *session, char *err, size_t err_size);
