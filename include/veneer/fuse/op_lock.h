/* SPDX-License-Identifier: Apache-2.0 */
/* How locks that the server keeps end with what is closed; and how a handle is made up, by which
 * they are known. */
#pragma once

#include "veneer/mount/mount.h"

#include <fuse_lowlevel.h>

/* The low bits of a handle say how the open gets its bytes; above them stands the number of the
 * request that it came by. */
#define OP_HANDLE_WAY_BITS 3

/* A descriptor was closed by a process, whose record locks of the file end; nothing without locks
 * of our own. */
void op_lock_flush(struct mount *m, fuse_ino_t ino, uint64_t owner, uint64_t handle);
/* The last descriptor of a handle was closed; nothing without locks of our own. */
void op_lock_release(struct mount *m, fuse_ino_t ino, uint64_t handle);
/* And what flock(2) does that gives up what the open file holds. */
void op_lock_unflock(struct mount *m, fuse_ino_t ino, uint64_t owner);
