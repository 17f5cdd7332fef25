/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of a mount: where it is attached, in the mount namespace of the process that
 * attached it. */
#pragma once

#include "veneer/mount/options.h"

struct attach;

/* At o->mountpoint, or by fusermount3 without privileges. The kernel's first request waits in
 * attach_fd. is_readonly: there is no upper. -errno and a sentence otherwise. */
int attach_new(const struct mount_opts *o, bool is_readonly, struct attach **ret, char *err,
	       size_t err_size);
/* A file system that is mounted nowhere, and is seen by nobody, until attach_narrow; it goes with
 * the last descriptor of it, and so with this process. -errno and a sentence otherwise. */
int attach_found(const struct mount_opts *o, struct attach **ret, char *err, size_t err_size);
/* The same, of the file system that fuse_fd, which is borrowed, belongs to, with what o says of the
 * mount itself. -ENOTCONN: it has gone. */
int attach_join(const struct mount_opts *o, int fuse_fd, struct attach **ret, char *err,
		size_t err_size);
/* The directory of this name in its root is mounted at o->mountpoint. -errno and a sentence;
 * nothing is mounted then. */
int attach_narrow(struct attach *a, const char *name, char *err, size_t err_size);
/* May this process do these three? */
bool attach_may_bind(void);
/* The descriptor of /dev/fuse, -1 of one that joined; borrowed. */
int attach_fd(const struct attach *a);
/* Close our descriptor once the server has it too, so that requests of this process end when all
 * servers are dead. */
void attach_disown(struct attach *a);
/* The device number of the mounted file system; 0:0 when it cannot be told. */
void attach_device(const struct attach *a, unsigned *ret_major, unsigned *ret_minor);
/* Tune the mount when it answers: make the kernel read further ahead, where it permits that. */
void attach_tune(const struct attach *a);
/* Unmount, lazily: what is open goes on being answered. -ENOENT: it is not at its place, or not any
 * more. */
int attach_detach(struct attach *a);
/* The mount is nowhere to be seen in our mount namespace: a process that still uses it has it open,
 * or is in a namespace of its own. In doubt no. */
bool attach_is_detached(const struct attach *a);
/* Lets go of the descriptor; the mount stays. */
void attach_free(struct attach *a);
