/* SPDX-License-Identifier: Apache-2.0 */
/* A mount that is in use goes back to a snapshot of its upper: from then on every name shows that,
 * and what was open stays what it was (inode_rollback.h). */
#pragma once

#include "veneer/mount/mount.h"

#define MOUNT_ROLLBACK_COPIES 256u /* of files in use that look different in the snapshot, */
#define MOUNT_ROLLBACK_BYTES  (64ull << 20) /* and how long they are in all */

/* The image of the mount's layers as they will be, so that opening the mount anew need not read
 * them: layer_registry_release. head: of the chain then; dirs, which are taken over, those of the
 * mount. 0, or -errno and one sentence. */
int mount_rollback_image(struct mount *m, struct mount_dirs *dirs, uint64_t head,
			 struct image **ret, char *err, size_t err_size);
/* Have the kernel forget what nobody uses, so that what it still has then is in use. fuse_fd: of
 * its connection. 0; -ENOSYS: it does not know how to; -errno. */
int mount_rollback_prune(struct mount *m, int fuse_fd);
/* After mount_freeze_check, as it: copy what is in use. kept: the snapshot of what the mount has
 * now. -EFBIG: that is too much; -errno; nothing has changed then. */
int mount_rollback_prepare(struct mount *m, struct image *next, uint64_t kept);

/* It cannot be done after all. */
void mount_rollback_cancel(struct mount *m);

/* The mount is open again after it went back: does the kernel still have names and attributes as
 * they were? */
bool mount_rollback_is_unsaid(struct mount *m);
/* Call fn for each name that is known (parent's node id, name), and for what gets a copy (node id,
 * NULL): between the two, or before any request is answered, as an orphan that is asked for loses
 * its name. */
void mount_rollback_each_name(struct mount *m,
			      void (*fn)(void *arg, uint64_t node, const char *name), void *arg);
/* Likewise, later, for each directory (node id, "") and each name in it, of which the kernel may
 * remember that there was nothing. 0, or -errno and something was left out. */
int mount_rollback_each_dir(struct mount *m, void (*fn)(void *arg, uint64_t node, const char *name),
			    void *arg);
/* The kernel has been told. */
void mount_rollback_end(struct mount *m);
