/* SPDX-License-Identifier: Apache-2.0 */
/* The shared superblocks of a server (shared_sb.h): which one a mount joins, and how long it stays.
 * Without a word from the kernel when one of several roots is unmounted, a thread looks where they
 * are mounted; what is mounted nowhere any more the kernel is told to let go of, and when it has,
 * the mount is over. Where all roots go, their file system goes with them. */
#pragma once

#include "veneer/fuse/pool.h"
#include "veneer/mount/mount.h"
#include "veneer/recover/supervisor_state.h"
#include "veneer/server/mount_record.h"

struct sb_registry;
struct hosted_sb;
struct hosted_member;

/* Is share=pages part of this program? */
bool sb_registry_is_built(void);

struct sb_registry_owner_calls {
	/* A mount is about to leave: when this returns its owner calls nothing of its member any
	 * more. */
	void (*leaves)(void *owner);
	/* It has left and belongs to its owner again; of the last member, after the common mount
	 * has closed its layers. */
	void (*ended)(void *owner);
};

/* The calls come on threads that may block. pool, supervisor_state (NULL: none) and calls are
 * borrowed. 0 or -errno. */
int sb_registry_new(struct pool *pool, struct supervisor_state *supervisor_state,
		    const struct sb_registry_owner_calls *calls, struct sb_registry **ret);
/* Free it when no mount is a member, or is about to be. */
void sb_registry_free(struct sb_registry *cs);

/* Find the shared superblock where m, which is open and not served, belongs; waits for one that is
 * being founded. asked: what m was asked for with; opener: the process that opened its directories.
 * *ret_fd: its descriptor of /dev/fuse, the caller's; -1: it is to be founded, by sb_registry_found
 * or sb_registry_leave. *ret is held until sb_registry_leave. 0; -EOPNOTSUPP: in none; -errno. */
int sb_registry_seek(struct sb_registry *cs, struct mount *m, const struct mount_record *asked,
		     pid_t opener, struct hosted_sb **ret, int *ret_fd);
/* Start it: its superblock waits in fuse_fd. 0, or -errno and a sentence. */
int sb_registry_found(struct hosted_sb *c, int fuse_fd, unsigned dev_major, unsigned dev_minor,
		      char *err, size_t err_size);
void sb_registry_leave(struct hosted_sb *c);

/* Serve the shared superblock with this key that a dead server left in the supervisor state; held
 * until sb_registry_leave. May take long, as opening mounts may; requests for its mounts wait until
 * they have entered, or are lost. -ENOENT: there is none; -errno; and a sentence. */
int sb_registry_resume(struct sb_registry *cs, uint64_t key, struct hosted_sb **ret, char *err,
		       size_t err_size);
/* The mount with this key will not enter it. */
void sb_registry_lose(struct hosted_sb *c, uint64_t key);
/* No mount will enter any that was in it under another server: look where those are that have. */
void sb_registry_lose_rest(struct sb_registry *cs);
struct image *sb_registry_image(const struct hosted_sb *c);

/* The mount is reached by sb_registry_number from now on. secret: sb_registry_describe's, of one
 * that was in it under another server; NULL. -ENOTCONN: this superblock is over, seek another one;
 * -errno. */
int sb_registry_enter(struct hosted_sb *c, struct mount *m, void *owner, const uint32_t *secret,
		      struct hosted_member **ret);
uint32_t sb_registry_number(const struct hosted_member *o);
/* Is it this one of the superblock with this device? */
bool sb_registry_is_at(const struct hosted_member *o, unsigned dev_major, unsigned dev_minor,
		       uint32_t number);
/* Describe the membership for the next server. False: the superblock is not saved and ends with
 * this server. */
bool sb_registry_describe(const struct hosted_member *o, struct mount_record *ret);
/* The root is bound where it belongs, in this mount namespace. When that is over, `ended` is
 * called. */
void sb_registry_bound(struct hosted_member *o, ino_t mount_ns);
/* The root will not be bound. `ended` is called. */
void sb_registry_abandon(struct hosted_member *o);

/* The mount is to be left and opened again while programs use it (sb_member_suspend): its requests
 * wait until sb_registry_reopened, and it does not leave until sb_registry_resumed, after which it
 * may be gone. -EBUSY: it ends, or is not bound yet; -EAGAIN: a request does not end in ms, and
 * sb_registry_resumed is to be called all the same. */
int sb_registry_suspend(struct hosted_member *o, unsigned ms);
void sb_registry_reopened(struct hosted_member *o);
/* May call `ended`: the caller keeps nobody from that. */
void sb_registry_resumed(struct hosted_member *o);
/* It could not be opened again: its requests are answered ESTALE, the waiters of its locks (NULL:
 * it has none) ENODEV, and `ended` is called. */
void sb_registry_lost(struct hosted_member *o, struct locks *locks);

/* Another mount wants its upper: if the root is mounted nowhere any more, the member ends, in use
 * or not. */
void sb_registry_evict(struct hosted_member *o);
/* Look now whether any mount has ended. */
void sb_registry_check(struct sb_registry *cs);
/* End all, in use or not. */
void sb_registry_end_all(struct sb_registry *cs);
