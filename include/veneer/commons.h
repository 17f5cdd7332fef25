/* SPDX-License-Identifier: Apache-2.0 */
/* The gatherings of a server (gather.h): which one a mount joins, and how long it stays. Without a word from the kernel when
 * one of several roots is unmounted, a thread looks where they are mounted; what is mounted nowhere any more the kernel
 * is told to let go of, and when it has, the mount is over. Where all roots go, their file system goes with them. */
#pragma once

#include "veneer/dossier.h"
#include "veneer/ledger.h"
#include "veneer/mount.h"
#include "veneer/pool.h"

struct commons;
struct common;
struct commoner;

/* ended: a mount is out of it, and its owner's again; called on a thread that may block, and of the last one after what the
 * whole has open of the layers was closed. pool and ledger (NULL: none) are borrowed. 0 or -errno. */
int commons_new(struct pool *pool, struct ledger *ledger, void (*ended)(void *owner), struct commons **ret);
/* Nobody is in any, or is about to be. */
void commons_free(struct commons *cs);

/* Where m, which is open and not served, belongs; waits for a gathering that is being founded. asked: what m was asked for
 * with; opener: the process that opened its directories. *ret_fd: its descriptor of /dev/fuse, the caller's; -1: it is to be founded, by
 * commons_found or commons_leave. *ret is held until commons_leave. 0; -EOPNOTSUPP: in none; -errno. */
int commons_seek(struct commons *cs, struct mount *m, const struct dossier *asked, pid_t opener, struct common **ret,
		 int *ret_fd);
/* Its superblock waits in fuse_fd. 0, or -errno and a sentence. */
int commons_found(struct common *c, int fuse_fd, unsigned dev_major, unsigned dev_minor, char *err, size_t err_size);
void commons_leave(struct common *c);

/* The gathering with this key that a dead server left in the ledger, served; held until commons_leave. May take long, as
 * opening mounts may; requests for its mounts wait until they have entered, or are lost. -ENOENT: there is none; -errno; and a
 * sentence. */
int commons_resume(struct commons *cs, uint64_t key, struct common **ret, char *err, size_t err_size);
/* The mount with this key will not enter it. */
void commons_lose(struct common *c, uint64_t key);
/* No mount will enter any that was in it under another server: look where those are that have. */
void commons_lose_rest(struct commons *cs);
struct image *commons_image(const struct common *c);

/* The mount is reached by commons_number from now on. secret: commons_describe's, of one that was in it under another
 * server; NULL. -ENOTCONN: the gathering is over, seek another one; -errno. */
int commons_enter(struct common *c, struct mount *m, void *owner, const uint32_t *secret, struct commoner **ret);
uint32_t commons_number(const struct commoner *o);
/* What the next server must know of that. False: there is none, the gathering ends with this one. */
bool commons_describe(const struct commoner *o, struct dossier *ret);
/* Its root is bound where it belongs, in this mount namespace. When that is over, `ended` comes. */
void commons_bound(struct commoner *o, ino_t mount_ns);
/* It will not be. `ended` comes. */
void commons_abandon(struct commoner *o);

/* Somebody else wants its upper: if it is mounted nowhere any more, it ends, in use or not. */
void commons_evict(struct commoner *o);
/* Look now whether any is over. */
void commons_check(struct commons *cs);
/* End all, in use or not. */
void commons_end_all(struct commons *cs);
