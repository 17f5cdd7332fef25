/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of one server, from the moment their layers are open until everything of them is
 * closed. */
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
	ino_t mount_ns; /* 0: unknown */
	uint64_t number; /* assigned by the table when the mount starts */
};

/* A mount, or its upper, by device and inode number of its root. */
struct mount_table_target {
	unsigned dev_major, dev_minor;
	uint32_t number; /* of a mount in a shared superblock (sb_registry_number), else 0 */
	uint64_t ino;
};

/* changed is called from any thread when a mount is gone, or when a mount has to give up its upper.
 * supervisor_state: saves the mounts for the next server; NULL: they are not saved. 0 or -errno. */
int mount_table_new(void (*changed)(void *arg), void *arg,
		    struct supervisor_state *supervisor_state, struct mount_table **ret);
/* Free the table, which must be empty. */
void mount_table_free(struct mount_table *r);

/* Open the layers and state of a mount before the kernel knows of it. May take long. d is the
 * request; it and dirs are taken over, unless the arguments cannot be parsed or dirs do not fit
 * them. -errno and a sentence. */
int mount_table_open(struct mount_table *r, struct mount_dirs *dirs, struct mount_record *d,
		     struct served_mount **ret, char *err, size_t err_size);
const struct mount *mount_table_mount(const struct served_mount *s);
/* Answer the mount from now on; its requests wait in fuse_fd, which stays the caller's. On failure
 * -errno and a sentence, and the caller drops the mount. */
int mount_table_start(struct mount_table *r, struct served_mount *s, int fuse_fd,
		      const struct served_place *at, char *err, size_t err_size);
/* Instead of mount_table_start, for a mount with share=pages: make it part of a shared superblock.
 * Seek the superblock (sb_registry_seek; opener as there), found it where *ret_fd is -1, and enter
 * it; then report whether the root was bound. The caller drops a mount that failed before it
 * entered, and leaves the superblock (sb_registry_leave). */
int mount_table_seek(struct mount_table *r, struct served_mount *s, pid_t opener,
		     struct hosted_sb **ret, int *ret_fd);
/* mount_ns: the mount namespace in which the root will be bound (0: unknown). -ENOTCONN: seek
 * another superblock. On failure a sentence. */
int mount_table_enter(struct served_mount *s, struct hosted_sb *c, ino_t mount_ns,
		      uint32_t *ret_number, char *err, size_t err_size);
/* The client has bound the root; is_bound false: it has not, and the mount ends. The table owns s
 * from now on. */
void mount_table_bound(struct served_mount *s, bool is_bound);
/* Look for mounts that were unmounted without a notice from the kernel. */
void mount_table_check(struct mount_table *r);
/* The number of mounts that are not saved, and so end with this server. */
size_t mount_table_count_unkept(struct mount_table *r);
/* Count this many mounts of a dead server as served, because they are about to be resumed.
 * Negative: they will not be. */
void mount_table_expect(struct mount_table *r, int change);
/* Resume an expected mount by its record d, saved at this place of the supervisor state. d is taken
 * over in any case, and a mount that cannot be resumed is dropped. 0; 1: the record is of a common
 * mount (shared_sb.h); -errno and a sentence. Any thread; may take long. */
int mount_table_resume(struct mount_table *r, struct mount_record *d, uint32_t place, char *err,
		       size_t err_size);
/* Resuming is over: every mount has been resumed or dropped. */
void mount_table_resumed(struct mount_table *r);
/* Close a mount that was opened and not started. May take long. */
void mount_table_drop(struct mount_table *r, struct served_mount *s);

/* The number of mounts that are open, or are being opened or closed. */
size_t mount_table_count(struct mount_table *r);
/* Call fn for each started mount, which stays open meanwhile. fn must not take a lock of this
 * module. */
void mount_table_each(struct mount_table *r,
		      void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		      void *arg);
/* Call fn for the mount that t names, which does not change meanwhile. Waits for a mount that is
 * being reopened or resumed. False: there is no such mount. */
bool mount_table_at(struct mount_table *r, const struct mount_table_target *t,
		    void (*fn)(struct mount *m, const struct served_place *at, void *arg),
		    void *arg);
/* Are all mounts ending? */
bool mount_table_ends(struct mount_table *t);
/* Steps of a change to a mount that is in use. Each returns 0, or -errno and has changed
 * nothing. */
struct mount_table_step {
	/* The upper does not change: mount_freeze_check is skipped, and nothing is synced. */
	bool keeps_upper;
	/* First, while requests are still answered. May be NULL. */
	int (*begin)(void *arg, struct mount *m, const struct mount_record *d);
	/* Then, while requests wait and after mount_freeze_check has agreed. May be NULL. */
	int (*prepare)(void *arg, struct mount *m, const struct mount_record *d);
	/* Last, while nothing of the mount is open. upper_fd: the root of its upper, which stays
	 * locked. */
	int (*take)(void *arg, int upper_fd);
	void *arg;
};
/* Apply the steps to the mount with this number (served_place), which has an upper. The mount is
 * left as after a crash of the server, and then opened anew in the same file system, with all open
 * files of programs. All of its upper is synced by then, unless it is volatile. Returns the result
 * of the steps or the errno of mount_freeze_check. Else:
 *
 * - -ENOENT: there is no such mount.
 * - -EBUSY: the mount is ending or being replaced.
 * - -EAGAIN: a request does not end.
 * - -EOPNOTSUPP: the mount is not saved for the next server, or has file locks that the kernel
 *   cannot ask for again.
 * - -ENOTCONN: the mount was lost. */
int mount_table_replace(struct mount_table *r, uint64_t id, const struct mount_table_step *step);
/* End all mounts at once, in use or not: their users get ENOTCONN. Waits at most some seconds for
 * each. */
void mount_table_end_all(struct mount_table *r);

/* Becomes readable when another mount wants an upper of this server. */
int mount_table_fd(const struct mount_table *r);
/* Then: end a mount whose upper is wanted and that is no longer mounted in its mount namespace. */
void mount_table_make_room(struct mount_table *r);
