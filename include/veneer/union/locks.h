/* SPDX-License-Identifier: Apache-2.0 */
/* The locks of one container's files, as far as the kernel leaves them to the server: record locks
 * of a process (fcntl) and of an open file (OFD), and flock.
 *
 * One struct locks serves one container. Containers share no lock, mutex, memory or waiter: a lock
 * is found by (container, inode). A server with several containers on one connection keeps a struct
 * locks for each and picks it by the request's container. Owners and handles may be numbered across
 * containers. Today a mount is a container (tree->locks). An inode is any number that stands for
 * one file while a lock of it is held; a later server finds that file by its node id.
 *
 * The kernel's requests and their effects:
 *
 * - owner: for a record lock of a process its table of open files, for an OFD lock and for flock
 *   the open file. The kernel does not distinguish the first two. They exclude each other alike, so
 *   both are LOCKS_RECORD here.
 * - A process loses its record locks of a file when it closes any descriptor of it: FLUSH, which
 *   states the owner (locks_release_owner). So no file may be opened with FOPEN_NOFLUSH, or these
 *   locks would be held for ever.
 * - OFD locks and flock end with the last descriptor of the open file: RELEASE. It does not state
 *   the owner of an OFD lock, so these locks are found by the handle of their request. Each open
 *   has its own handle, so the kernel must send OPEN: a connection whose OPEN was answered with
 *   ENOSYS (cached mounts) sends no RELEASE. By then no process has a lock by that handle any more:
 *   each FLUSH came before.
 * - RELEASE may still be on its way when close(2) returns. A lock that is only tried meanwhile must
 *   not fail because of it: locks_set tells whether the caller may try again in a moment.
 * - The search for deadlocks covers all owners of record locks. It may find a cycle through an OFD
 *   lock that another thread could release, where the kernel would wait. A program that uses OFD
 *   locks from several threads that wait for each other gets EDEADLK.
 * - A request for a flock of another type first gives up the held one, as in the kernel. If the
 *   request fails, the owner holds none.
 *
 * A waiter occupies no thread: a callback tells it. Each time a lock of a file is given up, its
 * waiters are tried in order of arrival, and each that can be served gets its lock. As in the
 * kernel, waiters do not hold up a later request that can be served at once.
 *
 * Held locks outlive the server (lock_table.h); the kernel resends the requests of waiters. Any
 * thread may call. No callback runs with a lock of this module held. */
#pragma once

#include "veneer/union/lock_table.h"

#define LOCKS_WAITERS_MAX 4096u
#define LOCKS_END	  INT64_MAX /* the end of a range without one */

enum lock_kind { LOCKS_RECORD, LOCKS_FLOCK };
enum lock_type { LOCKS_NONE, LOCKS_SHARED, LOCKS_EXCLUSIVE };

struct lock_request {
	enum lock_kind kind;
	enum lock_type type; /* LOCKS_NONE unlocks */
	uint64_t inode, node;
	uint64_t owner, handle;
	uint64_t start, end; /* both inclusive, at most LOCKS_END; flock covers everything */
	uint32_t pid; /* reported to a caller of locks_test */
};

struct locks;

int locks_new(struct locks **ret);
/* Attach the locks of a dead server in this memory file, which is taken over, also on failure.
 * inode_of: the inode of a node id; 0: it does not exist, and its locks are dropped. -EPROTO,
 * -ENOMEM, -errno. */
int locks_attach(int fd, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg,
		 struct locks **ret);
/* Give the inodes new numbers: inode_of, as in locks_attach, returns that of a node id, and never
 * one number for two inodes. An inode that inode_of does not know is forgotten as by locks_forget.
 * Requests may wait again after locks_end. 0; -ENOMEM: nothing has changed. */
int locks_renumber(struct locks *l, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg);
/* The memory file of the locks; borrowed. */
int locks_fd(const struct locks *l);
/* Free all; no request may be waiting (locks_end). NULL does nothing. */
void locks_free(struct locks *l);

/* Take or release a lock without waiting. 0. -EAGAIN: another owner holds it; *ret_is_closing: a
 * process has closed a descriptor of each such owner, so that their RELEASE may be on its way.
 * -ENOLCK: too many locks; -EINVAL. */
int locks_set(struct locks *l, const struct lock_request *q, bool *ret_is_closing);

/* Take a lock, waiting if necessary. First get a number, by which the waiter can be cancelled: from
 * then on locks_cancel may come, even before locks_wait. -ENOLCK: too many waiters. */
typedef void (*locks_told)(void *arg, int result);
int locks_prepare(struct locks *l, locks_told told, void *arg, uint64_t *ret_number);
/* 1: the request waits, and told is called once, by any thread and perhaps before this returns:
 * with 0 (lock held), -ENOLCK, or the reason of a cancellation. Otherwise told is not called: 0:
 * lock held; -EDEADLK; -EINTR: cancelled meanwhile; -ENOLCK; -EINVAL. The number is used up in any
 * case. */
int locks_wait(struct locks *l, uint64_t number, const struct lock_request *q);
/* Cancel a waiter: told is called with -EINTR before this returns, unless it was called already, or
 * the request does not wait yet. */
void locks_cancel(struct locks *l, uint64_t number);

/* Find a lock that conflicts with this one. False: there is none. */
bool locks_test(struct locks *l, const struct lock_request *r, struct lock_record *ret);

/* FLUSH: release the owner's record locks of a file. Other locks of that handle are marked, as
 * their RELEASE may follow (ret_is_closing). */
void locks_release_owner(struct locks *l, uint64_t inode, uint64_t owner, uint64_t handle);
/* RELEASE: release all locks of the handle. */
void locks_release_handle(struct locks *l, uint64_t inode, uint64_t handle);
/* The file is removed: drop all its locks. A waiter, which there should not be, is told -ESTALE. */
void locks_forget(struct locks *l, uint64_t inode);
/* Tell all waiters `result`; a request that would wait from now on gets it at once. Held locks
 * stay. */
void locks_end(struct locks *l, int result);

/* Call fn for each held record; fn must not call this module. */
void locks_each(struct locks *l, void (*fn)(const struct lock_record *r, void *arg), void *arg);
/* The numbers of held records and of waiters, for tests. */
uint32_t locks_count(struct locks *l);
uint32_t locks_waiting(struct locks *l);
