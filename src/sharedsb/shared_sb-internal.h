/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a shared superblock: shared_sb.c takes requests, sb_member.c keeps the members,
 * sb_locks.c the locks of the image's files, and sb_reply.c changes what is answered. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/sharedsb/shared_sb.h"

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/recover/estale_table.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

#define SHARED_SB_INTERRUPTS 256u /* noted of requests that are not known, or not yet */

/* In a handle: */
#define SHARED_SB_UNFLUSHED 1u /* closes of it are not told of, so it has no record locks */
#define SHARED_SB_OF_IMAGE \
	(1ull << 63) /* the open file is one of the image, and not of a mount; with any server */

/* A request that waits for a lock, or is about to. */
struct shared_sb_waiter {
	struct hlink link;
	uint64_t unique;
	uint32_t number; /* of the mount; 0: that is being found out */
	bool is_interrupted;
};

struct shared_sb {
	struct mount *common; /* number 0 */
	unsigned dev_major, dev_minor; /* of its file system */
	struct session *session; /* its; reads for all */
	void (*unused)(void *owner);
	struct estale_table *estale; /* by shared_sb_object_of */
	mutex_t lock;
	pthread_cond_t unpinned; /* or joined, or lost */
	GUARDED_BY(lock) struct htab members; /* by number */
	GUARDED_BY(lock) uint32_t last_number;
	/* numbers that will join, or be lost; 0 where one has or was */
	GUARDED_BY(lock) uint32_t *expected;
	GUARDED_BY(lock) size_t n_expected;
	_Atomic size_t n_awaited; /* of those not 0; written under lock */
	GUARDED_BY(lock) struct list_link late; /* what ended locks while some were (sb_locks.c) */
	GUARDED_BY(lock) size_t n_late;
	GUARDED_BY(lock) struct htab waiters; /* by unique: each answer is looked for there */
	_Atomic size_t n_waiters; /* written under lock */
	GUARDED_BY(lock) uint64_t interrupts[SHARED_SB_INTERRUPTS]; /* the last ones; 0: none */
	GUARDED_BY(lock) size_t n_interrupts;
	GUARDED_BY(lock) struct htab ties, ties_by_node; /* sb_locks.c */
	_Atomic size_t n_ties; /* written under lock */
	/* the common mount's inodes by struct image_entry; each referenced */
	GUARDED_BY(lock) struct htab dirs;
};

struct sb_member {
	struct hlink link;
	struct shared_sb *shared_sb;
	struct mount *m;
	struct session *session; /* reads nothing itself */
	void *owner;
	uint32_t number;
	uint32_t
		secret; /* changes its generations: nobody guesses a file handle of another mount */
	bool is_resumed; /* the kernel may hold less of it than its counts say */
	/* Where it has snapshots, its image has their layers above those of the common one; -1: the
	 * layers differ, and nothing is common. */
	ssize_t n_above;
	/* guarded by the superblock's lock */
	struct node_slot *root; /* its nlookup: of its root, that the kernel owes */
	unsigned pins; /* requests that are being answered */
	bool is_suspended; /* requests wait until it is open again */
	struct list_link ties;
};

/* The request that the thread is answering, and for which mount. */
struct shared_sb_route {
	struct sb_member *c;
	uint32_t opcode, caller;
	int64_t since_ms; /* when it came: the answer may take longer than ESTALE_TABLE_MS */
};
extern _Thread_local struct shared_sb_route sb_reply_route;

/* The session of a member mount sends its replies through this. */
extern const struct fuse_custom_io sb_reply_io;

/* A file of the image is noted by a number that means the same to the next server. (Files of one
 * number would be each mount's own without need.) */
static inline uint64_t shared_sb_object_of(const struct shared_sb *g, struct image_entry *e)
{
	return image_ino(g->common->tree.image, e);
}

static inline uint64_t shared_sb_base(const struct sb_member *c)
{
	return (uint64_t)c->number << 32;
}

/* Compare the layers of a member, which is open, with those of the common mount. */
void sb_twin_compare(struct sb_member *c);
/* The entry of the common image that this inode of a member is shown as, unless it is private;
 * NULL: none. Costs no system call where both have one image. */
struct image_entry *sb_twin_file(const struct sb_member *c, struct inode *i);
/* The entry of the common image that is the same file as this one of a member's image; NULL: none.
 */
struct image_entry *sb_twin_entry(const struct sb_member *c, struct image_entry *own);
/* The mount's own inode of a file of the image, referenced: what stands at the path that it has
 * there, if that is it and unchanged. -ESTALE: it is not. */
int sb_reply_find_own(struct sb_member *c, struct image_entry *e, struct inode **ret);
/* The inode at a path of a mount, referenced; path is taken apart. */
int sb_reply_look_up(struct union_fs *t, char *path, struct inode **ret);
/* The common mount's inode of a node id, also one that another server gave; NULL: it is none, or is
 * nothing any more. */
struct inode *sb_reply_common_inode(struct shared_sb *g, uint64_t node);
/* A node id of the image's file, one look-up of it counted. 0 or -errno. */
int sb_reply_grant_common(struct shared_sb *g, struct image_entry *e, uint32_t *ret_id,
			  uint32_t *ret_generation);
/* A mount that is in it, and stays until it is unpinned; NULL: no such. */
struct sb_member *sb_member_pin(struct shared_sb *g, uint64_t number);
void sb_member_unpin(struct sb_member *c);
/* Among the numbers that will join; NULL: it is not. With the lock. */
uint32_t *sb_member_expected_locked(struct shared_sb *g, uint64_t number) REQUIRES(g->lock);

/* A request that may wait for a lock has come, of a mount that is told later. 0 or -ENOMEM. */
int sb_locks_wait_begin(struct shared_sb *g, uint64_t unique);
/* Now it is given to that mount. Was it interrupted meanwhile? */
bool sb_locks_wait_at(struct shared_sb *g, uint64_t unique, uint32_t number);
/* The request is about to be answered; also called for requests that never waited. */
void sb_locks_wait_end(struct shared_sb *g, uint64_t unique);
/* The request is interrupted, perhaps before it has come: the mount that is to be told so; 0:
 * none. */
uint32_t sb_locks_wait_interrupt(struct shared_sb *g, uint64_t unique);

/* A lock of a file of the image is asked for: by which mount, pinned, and what node id the file has
 * there. 1; 0: there is nothing to be done; -ENOLCK: that cannot be known. May wait for a disk. */
int sb_locks_find(struct shared_sb *g, const struct fuse_in_header *in,
		  const struct fuse_lk_in *lock, struct sb_member **ret, uint32_t *ret_own);
/* A descriptor of a file of the image was closed by a process, or the last one of an open file. */
void sb_locks_flush(struct shared_sb *g, uint64_t node, uint64_t owner, uint64_t handle);
void sb_locks_release(struct shared_sb *g, uint64_t handle);
/* Of a mount that nobody can pin yet: what its locks that another server left are held by, and what
 * has ended them since. 0 or -ENOMEM. */
int sb_locks_resume(struct sb_member *c);
/* Forget the ties of a member that no request has pinned, or will. */
void sb_locks_leave(struct sb_member *c);
/* No mount is awaited any more, or no request waits; with the superblock's lock. */
void sb_locks_forget_late(struct shared_sb *g) REQUIRES(g->lock);
/* Give back the directories. */
void sb_reply_release_dirs(struct shared_sb *g);
