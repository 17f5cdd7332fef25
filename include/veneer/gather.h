/* SPDX-License-Identifier: Apache-2.0 */
/* One superblock for several mounts of one image ("a gathering"). Its root is a directory without entries that knows
 * each mount by a number: NUMBER is the root of that mount's tree, to be bound to where it belongs. Node ids have the
 * number in their upper half, and the mount's own id in the lower. Number 0 is the image itself, without any upper:
 * what a mount has not changed of the image's regular files goes out by that one's node ids, so that the kernel has one
 * inode and one set of pages for all. Whoever is about to change such a file is answered ESTALE: the kernel looks the
 * name up again, in a directory that belongs to one mount, and is given an id of that mount's own. Whose a lock of such a file is says the
 * caller's /proc. */
#pragma once

#include "veneer/session.h"

struct gather;
struct gathered;

/* common: a mount of the image without an upper, which outlives it. recall_fd: what gather_recall_fd gave in a server that
 * is dead, taken over, also on failure; -1: it is a new one. unused, called from any thread and with locks held, is told of
 * a mount that the kernel does not know any more: it waits for nothing. 0 or -errno. */
int gather_new(struct mount *common, int recall_fd, void (*unused)(void *owner), struct gather **ret);
/* A memory file, for the next server; borrowed. */
int gather_recall_fd(const struct gather *g);
/* Nobody serves its session, and nobody is in it. */
void gather_free(struct gather *g);
/* Its file system has this device: before it is started. */
void gather_note_device(struct gather *g, unsigned dev_major, unsigned dev_minor);
/* As session_start, of the whole. The session is the caller's, who frees it before the gathering. */
int gather_start(struct gather *g, int fuse_fd, struct session **ret, char *err, size_t err_size);
/* Go on as session_resume does. Before that, the mounts that were in it are expected: requests for one of them wait until
 * it has joined, or will not. 0, or -errno and a sentence. */
int gather_resume(struct gather *g, int fuse_fd, const void *init, size_t len, enum io_mode io, struct session **ret, char *err,
		  size_t err_size);
int gather_expect(struct gather *g, uint32_t number);
void gather_lose(struct gather *g, uint32_t number);
void gather_lose_rest(struct gather *g);

/* Started, and its last root has gone: the kernel says so here before anybody has read it. */
bool gather_has_ended(const struct gather *g);

/* Let a mount of the same image in, whose options agree with the common one's; not served elsewhere. It is reached by
 * its number when this returns, which is never used twice: a mount with a key has that. secret: gather_secret of one that
 * was in it under another server; NULL: it is new. 0 or -errno. */
int gather_join(struct gather *g, struct mount *m, void *owner, const uint32_t *secret, struct gathered **ret);
uint32_t gather_number(const struct gathered *c);
uint32_t gather_secret(const struct gathered *c);
/* Does the kernel hold its root, or anything in it? */
bool gather_is_used(struct gathered *c);
/* Have the kernel let go of what it holds of it without need; once more later for what was in use. `unused` is called when it holds nothing any more, which
 * may be at once, later, or never if somebody uses it. May wait for requests that other threads must answer. */
void gather_forget(struct gathered *c);
/* It is not reached any more: whoever still has something of it open gets ESTALE. Waits until its requests are answered. */
void gather_leave(struct gathered *c);
