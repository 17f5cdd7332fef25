/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts that one server serves, from the moment their layers are open until everything of them
 * is closed. */
#pragma once

#include "veneer/mount/mount.h"
#include "veneer/recover/supervisor_state.h"
#include "veneer/server/mount_record.h"
#include "veneer/server/sb_registry.h"

struct mount_table;
struct served_mount;

/* The place of a mount, as its helper sees it. */
struct served_place {
	unsigned dev_major, dev_minor; /* of the mounted file system */
	ino_t mount_ns; /* 0: not known */
	uint64_t number; /* the table's, of a mount that is started */
};

/* A mount, or its upper, by device and inode number of its root. */
struct mount_table_target {
	unsigned dev_major, dev_minor;
	uint32_t number; /* of a mount in a shared superblock (sb_registry_number) */
	uint64_t ino;
};

/* changed is called from any thread when a mount is gone or one makes room. supervisor_state: where
 * mounts are saved for the next server; NULL: nowhere. 0 or -errno. */
int mount_table_new(void (*changed)(void *arg), void *arg,
		    struct supervisor_state *supervisor_state, struct mount_table **ret);
/* There are no mounts any more. */
void mount_table_free(struct mount_table *r);

/* Open what a mount needs, before the kernel knows of it; may take long. d: what it is asked for
 * with; it and dirs are taken over, but where the arguments cannot be parsed or dirs do not fit
 * them. -errno and a sentence. */
int mount_table_open(struct mount_table *r, struct mount_dirs *dirs, struct mount_record *d,
		     struct served_mount **ret, char *err, size_t err_size);
const struct mount *mount_table_mount(const struct served_mount *s);
/* The mount waits in fuse_fd, which stays the caller's: answer it from now on. On failure -errno
 * and a sentence, and the caller drops it. */
int mount_table_start(struct mount_table *r, struct served_mount *s, int fuse_fd,
		      const struct served_place *at, char *err, size_t err_size);
/* Instead of mount_table_start, where the options ask for it: a part of a file system that other
 * mounts are part of too. As sb_registry.h has it: seek it, found it where *ret_fd is -1, and enter
 * it; then its root is bound, or is not. opener as sb_registry_seek has it. The caller drops what
 * failed before it is entered, and leaves what was found. */
int mount_table_seek(struct mount_table *r, struct served_mount *s, pid_t opener,
		     struct hosted_sb **ret, int *ret_fd);
/* mount_ns: the mount namespace in which it will be bound (0: not known). -ENOTCONN: seek another
 * one. On failure a sentence. */
int mount_table_enter(struct served_mount *s, struct hosted_sb *c, ino_t mount_ns,
		      uint32_t *ret_number, char *err, size_t err_size);
/* The root is bound, or the mount ends. The table owns s from now on. */
void mount_table_bound(struct served_mount *s, bool is_bound);
/* Some unmounted ones may not have been found yet: look. */
void mount_table_check(struct mount_table *r);
/* The number of mounts that end with this server. */
size_t mount_table_count_unkept(struct mount_table *r);
/* Count this many mounts of a dead server as served: they are about to be resumed. Below zero: they
 * will not be. */
void mount_table_expect(struct mount_table *r, int change);
/* Resume an expected mount by its record d, saved at this place of the supervisor state; d is taken
 * over in any case. A mount that cannot be resumed is dropped. 0; 1: the record is of a common
 * mount (shared_sb.h); -errno and a sentence. Any thread; may take long. */
int mount_table_resume(struct mount_table *r, struct mount_record *d, uint32_t place, char *err,
		       size_t err_size);
/* Every mount that could be resumed has been. */
void mount_table_resumed(struct mount_table *r);
/* Close a mount that was opened and not started; may take long. */
void mount_table_drop(struct mount_table *r, struct served_mount *s);

/* The number of mounts that are open, or are being opened or closed. */
size_t mount_table_count(struct mount_table *r);
/* Call fn for each that is started; it stays for that long. fn takes no lock of this module. */
void mount_table_each(struct mount_table *r,
		      void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		      void *arg);
/* Call fn of the mount that t says, which stays as it is meanwhile; one that is being opened anew
 * or resumed is waited for. False: there is none. */
bool mount_table_at(struct mount_table *r, const struct mount_table_target *t,
		    void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		    void *arg);
/* Does every mount of it end now? */
bool mount_table_ends(struct mount_table *t);
/* What is done to a mount that is in use; each gives 0 or -errno, and nothing has changed then. */
struct mount_table_step {
	/* The upper stays what it is: mount_freeze_check is not asked, and nothing is synced. */
	bool keeps_upper;
	/* While requests are answered. May be NULL. */
	int (*begin)(void *arg, struct mount *m, const struct mount_record *d);
	/* Requests wait, and mount_freeze_check has agreed. May be NULL. */
	int (*prepare)(void *arg, struct mount *m, const struct mount_record *d);
	/* The mount is open nowhere. upper_fd: the root of its upper, which stays locked. */
	int (*take)(void *arg, int upper_fd);
	void *arg;
};
/* Do it to the mount with this number (served_place), which has an upper. It is left as by a death
 * of the server, and opened anew afterwards, in the same file system, with all that programs have
 * open. All of its upper is synced by then, unless it is volatile. What the steps give; what
 * mount_freeze_check refuses; -ENOENT: there is no such mount; -EBUSY: it ends, or is being
 * replaced; -EAGAIN: a request does not end; -EOPNOTSUPP: it is not saved for the
 * next server, or has locks of files that the kernel cannot ask for again; -ENOTCONN: it was lost.
 */
int mount_table_replace(struct mount_table *r, uint64_t id, const struct mount_table_step *step);
/* End all of them at once, in use or not: their users get ENOTCONN. Waits for each at most for some
 * seconds. */
void mount_table_end_all(struct mount_table *r);

/* Readable when a mount wants an upper of ours. */
int mount_table_fd(const struct mount_table *r);
/* Then: a mount whose upper is wanted and which is nowhere to be seen in the mount namespace it was
 * made in ends. */
void mount_table_make_room(struct mount_table *r);
