/* SPDX-License-Identifier: Apache-2.0 */
/* One superblock for several mounts of one image. Its root is a directory that lists no entries and
 * knows each mount by a number: NUMBER is the root of that mount's tree, to be bind-mounted at its
 * mount point. A node id has the number in its upper half and the mount's own id in the lower.
 * Number 0 is the image itself, without an upper. An image's regular file that a mount has not
 * changed is announced by the image's node id, so that the kernel has one inode and one set of
 * pages for all mounts. A request that would change such a file is answered ESTALE: the kernel
 * looks the name up again, in a directory of one mount, and gets that mount's own id. The caller's
 * /proc tells to which mount a lock of such a file belongs. */
#pragma once

#include "veneer/fuse/session.h"

struct shared_sb;
struct sb_member;

/* common: a mount of the image without an upper; it must outlive the superblock. estale_table_fd:
 * the shared_sb_estale_fd of a dead server, taken over, also on failure; -1: start a new table.
 * unused: called from any thread and with locks held when the kernel no longer knows a mount; it
 * must not block. 0 or -errno. */
int shared_sb_new(struct mount *common, int estale_table_fd, void (*unused)(void *owner),
		  struct shared_sb **ret);
/* The memory file of the ESTALE table, for the next server; borrowed. */
int shared_sb_estale_fd(const struct shared_sb *g);
/* Free it; its session must not be served, and it has no members. */
void shared_sb_free(struct shared_sb *g);
/* Set the device of its file system, before it is started. */
void shared_sb_note_device(struct shared_sb *g, unsigned dev_major, unsigned dev_minor);
/* As session_start, for the whole superblock. The caller owns the session and frees it before the
 * superblock. */
int shared_sb_start(struct shared_sb *g, int fuse_fd, struct session **ret, char *err,
		    size_t err_size);
/* Resume as session_resume does. First expect the mounts that were members: requests for such a
 * mount wait until it has joined or is lost. 0, or -errno and a sentence. */
int shared_sb_resume(struct shared_sb *g, const struct session_saved *saved, struct session **ret,
		     char *err, size_t err_size);
int sb_member_expect(struct shared_sb *g, uint32_t number);
void sb_member_lose(struct shared_sb *g, uint32_t number);
void sb_member_lose_rest(struct shared_sb *g);

/* Has the last mount of the superblock gone since it was started? The kernel reports it here before
 * any thread has read it. */
bool shared_sb_has_ended(const struct shared_sb *g);

/* Let a mount join. Its options agree with the common one's; its image is the common one, or has
 * layers of snapshots above it; no session serves it. On return the kernel reaches it by its
 * number, which is never reused: the key, if the mount has one. secret: sb_member_secret of a
 * former member under another server; NULL: a new member. 0 or -errno. */
int sb_member_join(struct shared_sb *g, struct mount *m, void *owner, const uint32_t *secret,
		   struct sb_member **ret);
const struct mount *sb_member_mount(const struct sb_member *c);
uint32_t sb_member_number(const struct sb_member *c);
uint32_t sb_member_secret(const struct sb_member *c);
/* Does the kernel hold its root, or any node of it? */
bool sb_member_is_used(struct sb_member *c);
/* Make the kernel drop its unused nodes of the mount; call it again later for nodes that were in
 * use. `unused` is called when the kernel holds none any more: at once, later, or never while one
 * is in use. May wait for requests that other threads must answer. */
void sb_member_forget(struct sb_member *c);
/* Suspend the mount: its requests wait from now on, and running ones are completed. -EAGAIN: one
 * did not end within ms, and the mount goes on. Until sb_member_resume the mount may be left and
 * opened again, at the same address, with its node table and its locks. */
int sb_member_suspend(struct sb_member *c, unsigned ms);
void sb_member_resume(struct sb_member *c);
/* Its mount was suspended and left, and could not be opened again: its requests are answered
 * ESTALE, waiters for its locks (NULL: none) ENODEV. sb_member_leave must still be called. */
void sb_member_lost(struct sb_member *c, struct locks *locks);
/* Remove a mount: a process with an open file of it gets ESTALE. Waits until its requests are
 * answered. */
void sb_member_leave(struct sb_member *c);
