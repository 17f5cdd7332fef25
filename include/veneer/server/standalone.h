/* SPDX-License-Identifier: Apache-2.0 */
/* One mount in one process, without a server, as fuse-overlayfs does. */
#pragma once

#include "veneer/mount/mount.h"

/* Mount and serve until the mount is gone. ready_fd -1: messages go to standard error. Else
 * ready_fd is a pipe that gets one byte when the mount answers, and the process then detaches from
 * its starter. opts and dirs, which fit each other, are taken over. Returns the exit code; the
 * whole process belongs to the mount. */
int standalone_run(struct mount_opts *opts, struct mount_dirs *dirs, int ready_fd);
/* Run it in the background: returns 0 when the mount answers, or 1 after printing a sentence. Every
 * open descriptor other than the standard ones must be the caller's own and close-on-exec. */
int standalone_start(struct mount_opts *opts, struct mount_dirs *dirs);
