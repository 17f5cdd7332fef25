/* SPDX-License-Identifier: Apache-2.0 */
/* Ends locks that the server keeps when descriptors are closed. Handles identify the open files. */
#pragma once

#include "veneer/mount/mount.h"

#include <fuse_lowlevel.h>

/* The low bits of a handle say how the open gets its bytes; above them stands the number of the
 * request that it came by. */
#define OP_HANDLE_WAY_BITS 3

/* A process closed a descriptor: its record locks of the file end. These do nothing on a mount
 * whose locks the kernel keeps. */
void op_lock_flush(struct mount *m, fuse_ino_t ino, uint64_t owner, uint64_t handle);
/* The last descriptor of a handle was closed. */
void op_lock_release(struct mount *m, fuse_ino_t ino, uint64_t handle);
/* flock(2) with LOCK_UN. */
void op_lock_unflock(struct mount *m, fuse_ino_t ino, uint64_t owner);
