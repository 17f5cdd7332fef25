/* SPDX-License-Identifier: Apache-2.0 */
/* Has the kernel look names up again when a mount goes back to a snapshot (mount_rollback.h). A
 * child sends the notifications, as each waits until the lock of its directory is free. */
#pragma once

#include "veneer/mount/mount.h"

struct kernel_invalidate;

/* No request of the mount is answered, and mount_rollback_prepare has been done. Sends all names
 * that its inodes have; the kernel knows them before the first answer. fuse_fd: of its connection.
 * *ret: rollback_notify_free. 0 or -errno. */
int rollback_notify_before(struct mount *m, int fuse_fd, struct kernel_invalidate **ret);
/* 0: all of that is sent; -ETIMEDOUT: the kernel still waits for somebody, and goes on; -errno. */
int rollback_notify_await(struct kernel_invalidate *d, int wait_ms);
void rollback_notify_free(struct kernel_invalidate *d);

/* The mount is open again, in this server or in the next one, and no request has been answered: the
 * names that its node table has. NULL: it did not go back, or there is no memory. */
struct kernel_invalidate *rollback_notify_begin(struct mount *m, int fuse_fd);
/* Requests are answered: the rest. d: the result of begin; it is freed. 0, also if it did not go
 * back. Otherwise programs may see names as they were, and renames go on being checked
 * (rollback_notify_is_known): -ETIMEDOUT as above; -errno. */
int rollback_notify_end(struct kernel_invalidate *d, struct mount *m, int fuse_fd, int wait_ms);
/* A look-up of this name is about to be answered. Without memory the name stays unknown. Cheap if
 * the mount did not go back. */
void rollback_notify_looked_up(struct mount *m, uint64_t parent, const char *name);
/* False: the kernel may take the node that this name had before along to another name. ESTALE has
 * it look the name up, and rename again. True if the mount did not go back, at little cost. */
bool rollback_notify_is_known(struct mount *m, uint64_t parent, const char *name);
/* Forget the look-ups; renames are not checked any more. No session answers, or all is said. */
void rollback_notify_stop(struct mount *m);
