/* SPDX-License-Identifier: Apache-2.0 */
/* One mount served by one process, as fuse-overlayfs does. */
#pragma once

#include "veneer/mount/mount.h"

/* Mount and serve until the mount is gone. ready_fd: -1, and messages go to standard error; or a
 * pipe that gets one byte when the mount answers, and then everything of the starter's is let go
 * of. opts and dirs, which fit each other, are taken over. The process belongs to the mount: its
 * exit code. */
int standalone_run(struct mount_opts *opts, struct mount_dirs *dirs, int ready_fd);
/* The same in the background: returns 0 when the mount answers, or 1 when a sentence has been
 * printed. Every open descriptor but the standard ones is ours, and close-on-exec. */
int standalone_start(struct mount_opts *opts, struct mount_dirs *dirs);
