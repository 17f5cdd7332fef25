/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's mount of a FUSE file system, in the mount namespace of the process that made it. */
#pragma once

#include "veneer/mount/options.h"

struct attach;

/* Mount at o->mountpoint, by fusermount3 without privileges. The kernel's first request waits in
 * attach_fd. is_readonly: there is no upper. -errno and a sentence otherwise. */
int attach_new(const struct mount_opts *o, bool is_readonly, struct attach **ret, char *err,
	       size_t err_size);
/* Make a file system whose mount is detached, and seen by nobody, until attach_mount_subdir. It
 * ends with its last descriptor, and so with this process. -errno and a sentence otherwise. */
int attach_new_detached(const struct mount_opts *o, struct attach **ret, char *err,
			size_t err_size);
/* Likewise a detached mount, with the mount's own options of o, of the file system that fuse_fd,
 * which is borrowed, belongs to. -ENOTCONN: the file system has gone. */
int attach_join_sb(const struct mount_opts *o, int fuse_fd, struct attach **ret, char *err,
		   size_t err_size);
/* Mount the directory of this name in the root of the detached mount at o->mountpoint. -errno and a
 * sentence; nothing is mounted then. */
int attach_mount_subdir(struct attach *a, const char *name, char *err, size_t err_size);
/* Has this process the privilege that these three take? */
bool attach_may_bind(void);
/* The descriptor of /dev/fuse, -1 after attach_join_sb; borrowed. */
int attach_fd(const struct attach *a);
/* Close our descriptor once the server has it too, so that requests of this process end when all
 * servers are dead. */
void attach_close_fd(struct attach *a);
/* The device number of the mounted file system; 0:0: not known. */
void attach_device(const struct attach *a, unsigned *ret_major, unsigned *ret_minor);
/* Make the kernel read further ahead, where it permits that; when the mount is answered. */
void attach_tune(const struct attach *a);
/* Unmount, lazily: open files are still answered. -ENOENT: another mount, or none, is at the mount
 * point. */
int attach_detach(struct attach *a);
/* Is the file system absent from our mount namespace? A process that still uses it has it open, or
 * is in a namespace of its own. In doubt no. */
bool attach_is_detached(const struct attach *a);
/* Close the descriptor; the mount stays. */
void attach_free(struct attach *a);
