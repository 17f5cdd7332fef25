/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a shared superblock: shared_sb.c receives requests, sb_member.c manages the members,
 * sb_locks.c the locks of the image's files, and sb_reply.c translates answers. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/sharedsb/shared_sb.h"

#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/recover/estale_table.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

/* interrupts remembered of requests that are unknown, or not yet known */
#define SHARED_SB_INTERRUPTS 256u

/* In a handle: */
#define SHARED_SB_UNFLUSHED 1u /* its closes send no FLUSH, so it has no record locks */
/* the open file is of the image and not of a mount; the same in every server */
#define SHARED_SB_OF_IMAGE (1ull << 63)

/* A request that waits for a lock, or is about to. */
struct shared_sb_waiter {
	struct hlink link;
	uint64_t unique;
	uint32_t number; /* of the mount; 0: not known yet */
	bool is_interrupted;
};

struct shared_sb {
	struct mount *common; /* number 0 */
	unsigned dev_major, dev_minor; /* of its file system */
	struct session *session; /* of common; reads the requests of all members */
	void (*unused)(void *owner);
	struct estale_table *estale; /* keyed by shared_sb_object_of */
	mutex_t lock;
	pthread_cond_t unpinned; /* signalled when a member is unpinned, has joined or is lost */
	GUARDED_BY(lock) struct htab members; /* by number */
	GUARDED_BY(lock) uint32_t last_number;
	/* numbers that will join or be lost; 0: the member has joined or is lost */
	GUARDED_BY(lock) uint32_t *expected;
	GUARDED_BY(lock) size_t n_expected;
	_Atomic size_t n_awaited; /* entries of expected that are not 0; written under lock */
	/* requests that ended locks meanwhile (sb_locks.c) */
	GUARDED_BY(lock) struct list_link late;
	GUARDED_BY(lock) size_t n_late;
	GUARDED_BY(lock) struct htab waiters; /* by unique: each answer looks there */
	_Atomic size_t n_waiters; /* written under lock */
	GUARDED_BY(lock) uint64_t interrupts[SHARED_SB_INTERRUPTS]; /* the latest ones; 0: none */
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
	/* XORed into its generations, so that file handles of another mount cannot be guessed */
	uint32_t secret;
	bool is_resumed; /* the kernel may hold fewer lookups of it than its counts say */
	/* Number of snapshot layers that its image has above the common layers; -1: the layers
	 * differ, and no file is shared. */
	ssize_t n_above;
	/* guarded by the superblock's lock */
	struct node_slot *root; /* nlookup: the lookups of its root that the kernel owes */
	unsigned pins; /* running requests */
	bool is_suspended; /* requests wait until the mount is opened again */
	struct list_link ties;
};

/* The request that this thread is answering, and its mount. */
struct shared_sb_route {
	struct sb_member *c;
	uint32_t opcode, caller;
	int64_t since_ms; /* its arrival: the answer may take longer than ESTALE_TABLE_MS */
};
extern _Thread_local struct shared_sb_route sb_reply_route;

/* The session of a member mount sends its replies through this. */
extern const struct fuse_custom_io sb_reply_io;

/* Identifies a file of the image by a number that means the same to the next server. (Two files of
 * one number only get private ids without need.) */
static inline uint64_t shared_sb_object_of(const struct shared_sb *g, struct image_entry *e)
{
	return image_ino(g->common->tree.image, e);
}

static inline uint64_t shared_sb_base(const struct sb_member *c)
{
	return (uint64_t)c->number << 32;
}

/* Compare the layers of an open member with those of the common mount. */
void sb_twin_compare(struct sb_member *c);
/* The entry of the common image that a member's inode shows, unless the inode is private; NULL:
 * none. Needs no system call if both have one image. */
struct image_entry *sb_twin_file(const struct sb_member *c, struct inode *i);
/* The entry of the common image that is the same file as this entry of a member's image; NULL:
 * none. */
struct image_entry *sb_twin_entry(const struct sb_member *c, struct image_entry *own);
/* The mount's own inode of a file of the image, referenced: the one at the same path, if it is that
 * file and unchanged. -ESTALE: it is not. */
int sb_reply_find_own(struct sb_member *c, struct image_entry *e, struct inode **ret);
/* The inode at a path of a mount, referenced; modifies path. */
int sb_reply_look_up(struct union_fs *t, char *path, struct inode **ret);
/* The common mount's inode of a node id, also of one from another server. NULL: unknown, or its
 * file no longer exists. */
struct inode *sb_reply_common_inode(struct shared_sb *g, uint64_t node);
/* Grant a node id of the image's file, with one lookup. 0 or -errno. */
int sb_reply_grant_common(struct shared_sb *g, struct image_entry *e, uint32_t *ret_id,
			  uint32_t *ret_generation);
/* Pin a member by number, so that it stays until sb_member_unpin; NULL: there is none. */
struct sb_member *sb_member_pin(struct shared_sb *g, uint64_t number);
void sb_member_unpin(struct sb_member *c);
/* The entry of a number that will join; NULL: it is not expected. */
uint32_t *sb_member_expected_locked(struct shared_sb *g, uint64_t number) REQUIRES(g->lock);

/* Register a request that may wait for a lock; its mount is set later. 0 or -ENOMEM. */
int sb_locks_wait_begin(struct shared_sb *g, uint64_t unique);
/* Set the mount of the request. Was it interrupted meanwhile? */
bool sb_locks_wait_at(struct shared_sb *g, uint64_t unique, uint32_t number);
/* The request is about to be answered; may be called for requests that never waited. */
void sb_locks_wait_end(struct shared_sb *g, uint64_t unique);
/* Note that the request is interrupted, perhaps before it arrived. Returns the mount to forward the
 * interrupt to; 0: none. */
uint32_t sb_locks_wait_interrupt(struct shared_sb *g, uint64_t unique);

/* Find the mount of a request for a lock of an image's file, pinned, and the file's node id there.
 * 1; 0: nothing to do; -ENOLCK: the mount cannot be determined. May wait for a disk. */
int sb_locks_find(struct shared_sb *g, const struct fuse_in_header *in,
		  const struct fuse_lk_in *lock, struct sb_member **ret, uint32_t *ret_own);
/* A process has closed a descriptor of an image's file (flush), or the last descriptor of an open
 * file (release). */
void sb_locks_flush(struct shared_sb *g, uint64_t node, uint64_t owner, uint64_t handle);
void sb_locks_release(struct shared_sb *g, uint64_t handle);
/* Call before any thread can pin the mount: restore the ties of locks that another server left, and
 * apply the requests that ended locks since. 0 or -ENOMEM. */
int sb_locks_resume(struct sb_member *c);
/* Drop the ties of a member that no request has pinned or can pin. */
void sb_locks_leave(struct sb_member *c);
/* Drop the remembered requests: no mount is awaited any more, or no request waits. */
void sb_locks_forget_late(struct shared_sb *g) REQUIRES(g->lock);
/* Drop the references on the directories. */
void sb_reply_release_dirs(struct shared_sb *g);
