/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts that one server serves, from the moment their layers are open until everything of them is closed. */
#pragma once

#include "veneer/commons.h"
#include "veneer/dossier.h"
#include "veneer/ledger.h"
#include "veneer/mount.h"

struct roster;
struct served;

/* Where a mount lives, as its helper sees it. */
struct served_place {
	unsigned dev_major, dev_minor;	/* of the mounted file system */
	ino_t mount_ns;			/* 0: not known */
};

/* changed is called from any thread when a mount is gone or one makes room. ledger: where mounts are kept for the next
 * server, should this one die; NULL: nowhere. 0 or -errno. */
int roster_new(void (*changed)(void *arg), void *arg, struct ledger *ledger, struct roster **ret);
/* There are no mounts any more. */
void roster_free(struct roster *r);

/* Open what a mount needs, before the kernel knows of it; may take long. opts and dirs, which fit each other, are
 * taken over, and so is what d says they were asked for with. -errno and a sentence. */
int roster_open(struct roster *r, struct mount_opts *opts, struct mount_dirs *dirs, struct dossier *d, struct served **ret,
		char *err, size_t err_size);
const struct mount *served_mount(const struct served *s);
/* The mount waits in fuse_fd, which stays the caller's: answer it from now on. On failure -errno and a sentence, and
 * the caller drops it. */
int roster_start(struct roster *r, struct served *s, int fuse_fd, const struct served_place *at, char *err,
		 size_t err_size);
/* Instead of roster_start, where the options ask for it: a part of a file system that other mounts are part of too. As
 * commons.h has it: seek it, found it where *ret_fd is -1, and enter it; then its root is bound, or is not. opener as
 * commons_seek has it. What failed before it is entered is dropped by the caller, who leaves what was found. */
int roster_seek(struct roster *r, struct served *s, pid_t opener, struct common **ret, int *ret_fd);
/* mount_ns: the mount namespace in which it will be bound (0: not known). -ENOTCONN: seek another one. On failure a sentence. */
int roster_enter(struct roster *r, struct served *s, struct common *c, ino_t mount_ns, uint32_t *ret_number, char *err,
		 size_t err_size);
/* Or it is not, and goes. s is the roster's from now on. */
void roster_bound(struct served *s, bool is_bound);
/* Some unmounted ones may not have been found yet: look. */
void roster_check(struct roster *r);
/* How many end with this server. */
size_t roster_count_unkept(struct roster *r);
/* So many mounts of a server that died are about to be gone on with, or, below zero, will not be: from now on they
 * count. */
void roster_expect(struct roster *r, int change);
/* Go on with one that is expected, kept at this place of the ledger: d, which is taken over in any case. What cannot be
 * gone on with is dropped. 0; 1: it is what several mounts have in common, and none itself; -errno and a sentence. Any
 * thread; may take long. */
int roster_resume(struct roster *r, struct dossier *d, uint32_t place, char *err, size_t err_size);
/* All that could be gone on with are. */
void roster_resumed(struct roster *r);
/* One that was opened and not started; may take long. */
void roster_drop(struct roster *r, struct served *s);

/* Those that are open, or are being opened or closed. */
size_t roster_count(struct roster *r);
/* Call fn for each that is started; it stays for that long. fn takes no lock of this module. */
void roster_each(struct roster *r, void (*fn)(struct mount *m, const struct served_place *at, void *arg), void *arg);
/* End all of them at once, in use or not: their users get ENOTCONN. Waits for each at most for some seconds. */
void roster_end_all(struct roster *r);

/* Readable when somebody wants an upper of ours. */
int roster_fd(const struct roster *r);
/* Then: a mount whose upper is wanted and which is nowhere to be seen in the mount namespace it was made in ends. */
void roster_make_room(struct roster *r);
