/* SPDX-License-Identifier: Apache-2.0 */
/* Rolls a mount in use back to a snapshot of its upper. Afterwards every name shows the snapshot,
 * and open files stay as they were (inode_rollback.h). */
#pragma once

#include "veneer/mount/mount.h"

#define MOUNT_ROLLBACK_COPIES 256u /* limit of files in use that differ from the snapshot */
#define MOUNT_ROLLBACK_BYTES  (64ull << 20) /* limit of their total length */

/* Build the image of the mount's layers after the rollback, so that reopening the mount need not
 * read them. The caller releases it (layer_registry_release). head: of the chain after the
 * rollback. dirs: of the mount; taken over. 0, or -errno and a sentence. */
int mount_rollback_image(struct mount *m, struct mount_dirs *dirs, uint64_t head,
			 struct image **ret, char *err, size_t err_size);
/* Have the kernel forget unused inodes, so that the remaining ones are in use. fuse_fd: of its
 * connection. 0; -ENOSYS: the kernel has no such request; other -errno. */
int mount_rollback_prune(struct mount *m, int fuse_fd);
/* Copy the files in use that differ, after mount_freeze_check and under its conditions. kept: the
 * snapshot of the present contents. -EFBIG: there are too many of them; other -errno. On failure
 * nothing has changed. */
int mount_rollback_prepare(struct mount *m, struct image *next, uint64_t kept);

/* Undo mount_rollback_prepare. */
void mount_rollback_cancel(struct mount *m);

/* After reopening: does the kernel still have to be told of changed names and attributes? */
bool mount_rollback_is_unsaid(struct mount *m);
/* Call fn for each known name (node id of the parent, name), and for each file with a copy (node
 * id, NULL). Call it after mount_rollback_prepare, or after reopening and before any request is
 * answered, because an orphan loses its name once a request asks for it. */
void mount_rollback_each_name(struct mount *m,
			      void (*fn)(void *arg, uint64_t node, const char *name), void *arg);
/* Later, call fn for each directory (node id, "") and each name in it, because the kernel may have
 * cached that a name does not exist. 0; or -errno, and some names were left out. */
int mount_rollback_each_dir(struct mount *m, void (*fn)(void *arg, uint64_t node, const char *name),
			    void *arg);
/* The kernel has been told of all names. */
void mount_rollback_end(struct mount *m);
