/* SPDX-License-Identifier: Apache-2.0 */
/* The locks of one container's files, as its kernel asks for them where it does not keep them
 * itself: record locks of a process (fcntl) and of an open file (OFD), and flock.
 *
 * One struct locks is one container: of what is in another one it knows nothing, nor waits for its
 * mutex, its memory or its waiters. So a lock is found by (container, inode), and a server of
 * several containers by one connection has one of these for each and picks it by whose request it
 * is; owners and handles may be numbered for all of them together. Today a mount is a container
 * (tree->locks). An inode is any number that stands for one file as long as something is held of
 * it; a node id is what a later server finds that file by.
 *
 * What the kernel says, and what becomes of it:
 *
 * - owner: for a record lock of a process its table of open files, for an OFD lock and for flock
 *   the open file. The kernel does not say which of the first two it is. They exclude each other
 *   alike, so here both are LOCKS_RECORD.
 * - A process loses its record locks of a file when it closes any descriptor of it: FLUSH, which
 *   says the owner. So nothing may be opened with FOPEN_NOFLUSH, or they would be held for ever:
 *   locks_release_owner.
 * - OFD locks and flock go with the last descriptor of the open file: RELEASE, which does not say
 *   the owner of an OFD lock, so they are known by the handle they were asked for by. Each open has
 *   one of its own, and opens are asked about: a connection whose OPEN was answered with ENOSYS
 *   (cached mounts) sends no RELEASE. By then no process has a lock by that handle any more: each
 *   FLUSH came before.
 * - RELEASE is on its way when close(2) returns. A lock that is only tried meanwhile must not fail
 *   for it: locks_set tells which caller may try again in a moment.
 * - Deadlock is looked for among all owners of record locks, and may so be seen where an OFD lock
 *   is a part of it, of which another thread could let go: the kernel would let that wait. A
 *   program that uses OFD locks from several threads that wait for each other gets EDEADLK.
 * - flock that is asked for in another way gives up what it had first, as the kernel does; one that
 *   fails has nothing then.
 *
 * A waiter holds no thread: it is told. The waiters for a file are looked at in the order in
 * which they came, each time something of it is given up, and a waiter that can have what it
 * wants gets it; a later request that can be served at once is not held up by waiters, as in the
 * kernel.
 *
 * Held locks outlive the server (lock_table.h); the kernel sends the requests of waiters again.
 * Any thread. Nothing is called back with a lock of ours held. */
#pragma once

#include "veneer/union/lock_table.h"

#define LOCKS_WAITERS_MAX 4096u
#define LOCKS_END	  INT64_MAX /* the end of a range that has none */

enum lock_kind { LOCKS_RECORD, LOCKS_FLOCK };
enum lock_type { LOCKS_NONE, LOCKS_SHARED, LOCKS_EXCLUSIVE };

struct lock_request {
	enum lock_kind kind;
	enum lock_type type; /* LOCKS_NONE gives it up */
	uint64_t inode, node;
	uint64_t owner, handle;
	uint64_t start, end; /* both in it, at most LOCKS_END; of flock all */
	uint32_t pid; /* to be told to a caller that asks */
};

struct locks;

int locks_new(struct locks **ret);
/* With what a dead server left in this memory file, which is taken over, also on failure. inode_of:
 * of a node id; 0: there is none, and the lock goes. -EPROTO, -ENOMEM, -errno. */
int locks_attach(int fd, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg,
		 struct locks **ret);
/* The inodes have other numbers now: of a node id, as in locks_attach. Two of them do not become
 * one. What inode_of does not know any more is forgotten as by locks_forget, and requests may
 * wait again after locks_end. 0; -ENOMEM: nothing has changed. */
int locks_renumber(struct locks *l, uint64_t (*inode_of)(uint64_t node, void *arg), void *arg);
/* The memory file of the locks; borrowed. */
int locks_fd(const struct locks *l);
/* Free them when no request waits (locks_end). NULL is fine. */
void locks_free(struct locks *l);

/* Have it now, or give it up. 0; -EAGAIN: another owner has it; is_closing then: and all its owners
 * were closed by a process since, so that their end may be on its way. -ENOLCK: there are too many;
 * -EINVAL. */
int locks_set(struct locks *l, const struct lock_request *q, bool *ret_is_closing);

/* Have it, or wait for it. First get a number by which the waiter can be given up: from then on
 * locks_cancel may come, before it waits too. -ENOLCK: too many wait. */
typedef void (*locks_told)(void *arg, int result);
int locks_prepare(struct locks *l, locks_told told, void *arg, uint64_t *ret_number);
/* 1: it waits, and told is called once, by any thread and perhaps before this returns: with 0, it
 * has it, -ENOLCK, or why it was given up. Otherwise told is not called: 0, it has it; -EDEADLK;
 * -EINTR: given up meanwhile; -ENOLCK; -EINVAL. In any case the number is used up. */
int locks_wait(struct locks *l, uint64_t number, const struct lock_request *q);
/* Cancel a waiter: told with -EINTR before this returns, unless it was told already, or does not
 * wait yet. */
void locks_cancel(struct locks *l, uint64_t number);

/* Some lock that is in the way of this one. False: none is. */
bool locks_test(struct locks *l, const struct lock_request *r, struct lock_record *ret);

/* FLUSH: the owner's record locks of a file are given up. Of what else was taken by that handle the
 * end may be near. */
void locks_release_owner(struct locks *l, uint64_t inode, uint64_t owner, uint64_t handle);
/* RELEASE. */
void locks_release_handle(struct locks *l, uint64_t inode, uint64_t handle);
/* There is no such file any more: nothing of it is held. A waiter, which there should not be, is
 * told -ESTALE. */
void locks_forget(struct locks *l, uint64_t inode);
/* Tell all waiters to try later; a request that would wait from now on gets that at once. Held
 * locks stay. */
void locks_end(struct locks *l, int result);

/* Call fn for each record that is held; nothing of locks may be called by it. */
void locks_each(struct locks *l, void (*fn)(const struct lock_record *r, void *arg), void *arg);
/* Records held, and waiters, for tests. */
uint32_t locks_count(struct locks *l);
uint32_t locks_waiting(struct locks *l);
