/* SPDX-License-Identifier: Apache-2.0 */
/* The shared superblocks of a server (shared_sb.h): which one a mount joins, and how long it stays.
 * The kernel does not tell when one of several roots is unmounted, so a thread looks where they are
 * mounted. It tells the kernel to forget a root that is mounted nowhere; once the kernel has, the
 * mount is over. When the last root goes, the file system goes with it. */
#pragma once

#include "veneer/fuse/pool.h"
#include "veneer/mount/mount.h"
#include "veneer/recover/supervisor_state.h"
#include "veneer/server/mount_record.h"

struct sb_registry;
struct hosted_sb;
struct hosted_member;

/* Is share=pages part of this build? */
bool sb_registry_is_built(void);

struct sb_registry_owner_calls {
	/* A mount is about to leave: after this returns, its owner makes no calls on the member. */
	void (*leaves)(void *owner);
	/* The mount has left and belongs to its owner again. For the last member, this comes after
	 * the common mount has closed its layers. */
	void (*ended)(void *owner);
};

/* The owner's calls come on threads that may block. pool, supervisor_state (NULL: none) and calls
 * are borrowed. 0 or -errno. */
int sb_registry_new(struct pool *pool, struct supervisor_state *supervisor_state,
		    const struct sb_registry_owner_calls *calls, struct sb_registry **ret);
/* Free the registry. No mount may be a member, or be about to become one. */
void sb_registry_free(struct sb_registry *cs);

/* Find the shared superblock for m, which is open and not served; waits for one that is being
 * founded. asked: the request for m; opener: the process that opened its directories. *ret_fd: a
 * descriptor of /dev/fuse that the caller owns; -1: the caller founds it with sb_registry_found, or
 * leaves. *ret is held until sb_registry_leave. 0; -EOPNOTSUPP: m cannot share; -errno. */
int sb_registry_seek(struct sb_registry *cs, struct mount *m, const struct mount_record *asked,
		     pid_t opener, struct hosted_sb **ret, int *ret_fd);
/* Found the superblock; its requests wait in fuse_fd. 0, or -errno and a sentence. */
int sb_registry_found(struct hosted_sb *c, int fuse_fd, unsigned dev_major, unsigned dev_minor,
		      char *err, size_t err_size);
void sb_registry_leave(struct hosted_sb *c);

/* Serve the shared superblock with this key, which a dead server left in the supervisor state. *ret
 * is held until sb_registry_leave. May take long, as it opens mounts. Requests for its mounts wait
 * until they have entered or are lost. -ENOENT: there is none; other -errno. On failure a
 * sentence. */
int sb_registry_resume(struct sb_registry *cs, uint64_t key, struct hosted_sb **ret, char *err,
		       size_t err_size);
/* The mount with this key will not enter the superblock. */
void sb_registry_lose(struct hosted_sb *c, uint64_t key);
/* No more mounts of a dead server will enter any superblock: look where the others are mounted. */
void sb_registry_lose_rest(struct sb_registry *cs);
struct image *sb_registry_image(const struct hosted_sb *c);

/* Make the mount reachable as sb_registry_number. secret: from sb_registry_describe, for a member
 * under a previous server; else NULL. -ENOTCONN: this superblock is over, seek another one; other
 * -errno. */
int sb_registry_enter(struct hosted_sb *c, struct mount *m, void *owner, const uint32_t *secret,
		      struct hosted_member **ret);
uint32_t sb_registry_number(const struct hosted_member *o);
/* Does the superblock have this device, and the member this number? */
bool sb_registry_is_at(const struct hosted_member *o, unsigned dev_major, unsigned dev_minor,
		       uint32_t number);
/* Describe the membership for the next server. False: the superblock is not saved and ends with
 * this server. */
bool sb_registry_describe(const struct hosted_member *o, struct mount_record *ret);
/* The root is bound in this mount namespace. When it is unmounted, `ended` is called. */
void sb_registry_bound(struct hosted_member *o, ino_t mount_ns);
/* The root will not be bound. `ended` is called. */
void sb_registry_abandon(struct hosted_member *o);

/* Suspend the member (sb_member_suspend) so that its mount can be left and reopened while programs
 * use it. Its requests wait until sb_registry_reopened. It does not leave before
 * sb_registry_resumed, after which it may be gone. -EBUSY: the member is ending or not bound yet;
 * -EAGAIN: a request does not end within ms, and the caller must call sb_registry_resumed all the
 * same. */
int sb_registry_suspend(struct hosted_member *o, unsigned ms);
void sb_registry_reopened(struct hosted_member *o);
/* May call `ended`, so the caller must not hold locks that `ended` needs. */
void sb_registry_resumed(struct hosted_member *o);
/* Reopening has failed: its requests get ESTALE, the waiters of its locks (NULL: none) get ENODEV,
 * and `ended` is called. */
void sb_registry_lost(struct hosted_member *o, struct locks *locks);

/* Another mount wants the upper of this member. If the root is mounted nowhere any more, the member
 * ends, in use or not. */
void sb_registry_evict(struct hosted_member *o);
/* Look now for mounts that have ended. */
void sb_registry_check(struct sb_registry *cs);
/* End all members, in use or not. */
void sb_registry_end_all(struct sb_registry *cs);
