/* SPDX-License-Identifier: Apache-2.0 */
/* One superblock for several mounts of one image. Its root is a directory without entries that
 * knows each mount by a number: NUMBER is the root of that mount's tree, to be bound to where it
 * belongs. Node ids have the number in their upper half, and the mount's own id in the lower.
 * Number 0 is the image itself, without any upper: what a mount has not changed of the image's
 * regular files goes out by that one's node ids, so that the kernel has one inode and one set of
 * pages for all. A request that is about to change such a file is answered ESTALE: the kernel looks
 * the name up again, in a directory that belongs to one mount, and is given an id of that mount's
 * own. The caller's /proc tells to which mount a lock of such a file belongs. */
#pragma once

#include "veneer/fuse/session.h"

struct shared_sb;
struct sb_member;

/* common: a mount of the image without an upper, which outlives it. estale_table_fd: what
 * shared_sb_estale_fd gave in a server that is dead, taken over, also on failure; -1: it is a new
 * one. unused, called from any thread and with locks held, is told of a mount that the kernel does
 * not know any more: it waits for nothing. 0 or -errno. */
int shared_sb_new(struct mount *common, int estale_table_fd, void (*unused)(void *owner),
		  struct shared_sb **ret);
/* The memory file of the ESTALE table, for the next server; borrowed. */
int shared_sb_estale_fd(const struct shared_sb *g);
/* Free it when its session is not served and it has no members. */
void shared_sb_free(struct shared_sb *g);
/* Tell it the device of its file system, before it is started. */
void shared_sb_note_device(struct shared_sb *g, unsigned dev_major, unsigned dev_minor);
/* As session_start, for the whole superblock. The caller owns the session and frees it before the
 * superblock. */
int shared_sb_start(struct shared_sb *g, int fuse_fd, struct session **ret, char *err,
		    size_t err_size);
/* Go on as session_resume does. Before that, the mounts that were in it are expected: requests for
 * one of them wait until it has joined, or will not. 0, or -errno and a sentence. */
int shared_sb_resume(struct shared_sb *g, const struct session_saved *saved, struct session **ret,
		     char *err, size_t err_size);
int sb_member_expect(struct shared_sb *g, uint32_t number);
void sb_member_lose(struct shared_sb *g, uint32_t number);
void sb_member_lose_rest(struct shared_sb *g);

/* Has its last root gone after it was started? The kernel says so here before any thread has read
 * it. */
bool shared_sb_has_ended(const struct shared_sb *g);

/* Let a mount in. Its options agree with the common one's, and its image is the common one, or has
 * layers of snapshots above those; no session serves it. When this returns the kernel reaches it by
 * its number, which is never used twice: a mount with a key has that. secret:
 * sb_member_secret of one that was in it under another server; NULL: it is new. 0 or -errno. */
int sb_member_join(struct shared_sb *g, struct mount *m, void *owner, const uint32_t *secret,
		   struct sb_member **ret);
const struct mount *sb_member_mount(const struct sb_member *c);
uint32_t sb_member_number(const struct sb_member *c);
uint32_t sb_member_secret(const struct sb_member *c);
/* Does the kernel hold its root, or anything in it? */
bool sb_member_is_used(struct sb_member *c);
/* Have the kernel let go of what it holds of it without need; once more later for what was in use.
 * `unused` is called when it holds nothing any more, which may be at once, later, or never if it is
 * in use. May wait for requests that other threads must answer. */
void sb_member_forget(struct sb_member *c);
/* Its requests wait from now on, and those that came before are answered. -EAGAIN: one is not in
 * ms, and it goes on. Until sb_member_resume the mount may be left and opened again, at the same
 * address, with its node table and its locks. */
int sb_member_suspend(struct sb_member *c, unsigned ms);
void sb_member_resume(struct sb_member *c);
/* It is suspended, and its mount was left and could not be opened again: its requests are answered
 * ESTALE, those that wait for its locks (NULL: it has none) ENODEV. It is still to leave. */
void sb_member_lost(struct sb_member *c, struct locks *locks);
/* Take a mount out: a process that still has something of it open gets ESTALE. Waits until its
 * requests are answered. */
void sb_member_leave(struct sb_member *c);
