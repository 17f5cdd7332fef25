/* SPDX-License-Identifier: Apache-2.0 */
/* Replace the running server by one of this program, which takes over its mounts. */
#pragma once

#include "veneer/server/rundir.h"

/* Descriptors that the new process starts with: the connection to the old server, and the pipe that
 * reports the result. */
#define UPGRADE_FROM_FD 3
#define UPGRADE_WORD_FD 4

/* Start a server in the background, and wait until it serves all mounts. Reports success on
 * standard output and failure on standard error. 0 or -errno. */
int upgrade_run(const struct rundir *at, unsigned idle_s);
